"""The gRPC side of a router process: calls, health, reflection, keys; the same path and the same checks as over HTTP.

Process: a router process. In: messages of proto/v1/octavo.proto. Out: the same.
Imports: router.frontend, router.answers, router.openai_api.
"""
