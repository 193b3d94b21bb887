"""From the text of an answer to its parts: reasoning, content, tool calls; text comes in pieces of any length.

Process: a router process. In: pieces of text. Out: events. Imports: itself. PURE: no clock, no network, no asyncio.
"""
