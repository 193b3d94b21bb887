"""Which part of a model a rank holds: the layers of its stage, and its share of heads, columns and vocabulary.

Process: supervisor and ranks. In: a model's shape and a group's layout. Out: ranges. Imports: worker.models.config,
worker.config, worker.topology. PURE.
"""
