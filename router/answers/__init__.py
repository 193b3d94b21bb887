"""From tokens to an answer: text with details, reasoning or calls, whole or streamed, in each API's format.

Process: a router process, in the handler of the message that brought the tokens. In: token ids from router.dispatch.
Out: bytes for the client's connection. Imports: router.text, router.parsers, router.openai_api, router.jobs.
"""
