"""The groups of one service: their names, what is observed of them, their revisions, and the next step of a rollout.

Process: the operator. In: a resource and the objects that the API server has for it. Out: values, never actions.
Imports: operator.api. PURE: no client, no clock (`now` is an argument), no asyncio.
"""
