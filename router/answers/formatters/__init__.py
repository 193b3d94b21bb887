"""The forms of an answer: completions, chats and responses in OpenAI's JSON, whole and as events; and protobuf.

Process: a router process. In: text, deltas and usage of an answer. Out: bytes, or messages of octavo.v1.
Imports: router.parsers, router.openai_api, router.jobs. PURE.
"""
