"""/v1/responses as a chat request: its items, tools and text formats become fields of a chat.

Process: as router.openai_api. In: a JSON body. Out: a checked request. Imports: router.openai_api. PURE.
"""
