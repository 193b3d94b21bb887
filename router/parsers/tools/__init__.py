"""Tool calls found in the text of an answer: one parser for each format that models were trained on.

Process: a router process. In: pieces of text. Out: the events of events.py. `formats.py` tells a model's format from
its chat template. Imports: itself. PURE.
"""
