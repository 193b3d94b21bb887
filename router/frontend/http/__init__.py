"""The HTTP side of a router process, on aiohttp: routes, handlers, connections and their limits.

Process: a router process. In: HTTP requests. Out: JSON and server-sent events.
Imports: router.frontend, router.api_document, router.answers.
"""
