"""A model's text side: chat template, tokenizer, detokenizer, stop strings.

Process: a tokenizer process (templates, long prompts) and a router process (the rest). In: checked requests, token ids.
Out: token ids, text. Imports: router.openai_api, router.parsers, router.jobs; tokenizers and jinja2. Templates are
foreign code and run only in sandbox.py. No clock, no network.
"""
