"""The tools that a chat request offers, and which of them its answer may or must call.

Process: as router.openai_api. In: the fields `tools`, `tool_choice`, `parallel_tool_calls`. Out: a ToolUse.
Imports: the field checks of router.openai_api. PURE.
"""
