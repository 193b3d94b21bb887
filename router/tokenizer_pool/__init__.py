"""Processes that parse, render and encode, so that a request which never ends can be killed; and the model they load.

Process: helper.py: the tokenizer process; all others: a router process. In: a request's body. Out: token
ids, and what else dispatch needs. Imports: router.constrained, router.text, router.metrics, router.jobs.
"""
