"""The JSON of answers: completions, chats and responses, whole and as server-sent events.

Process: a router process. In: text, usage and parts of an answer. Out: JSON as bytes.
Imports: router.parsers, router.openai_api, router.jobs. PURE.
"""
