"""The document at /openapi.json, made from the table of routes and the parsers themselves.

Process: a router process. In: nothing. Out: the routes that frontend.http serves, and a JSON document.
Imports: router.openai_api, router.text. PURE.
"""
