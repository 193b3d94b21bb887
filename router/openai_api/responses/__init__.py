"""/v1/responses in the words of a chat: its items, tools and text formats become the fields that a chat has.

Process: as router.openai_api. In: a JSON body. Out: a checked request. Imports: router.openai_api. PURE.
"""
