"""Constrained generation: the grammar that an answer must match, for a response format or for tool calls.

Process: a tokenizer process, since compiling may take long. In: a checked request and the model's formats. Out: a
grammar for the engine, or a RequestError. Imports: router.text, router.openai_api, router.parsers; llguidance.
"""
