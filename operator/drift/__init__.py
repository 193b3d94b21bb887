"""Drift: what other clients change of the objects that the operator has applied, and when it applies them again.

Process: the operator. In: live and desired objects, times of applies. Out: the time of the next apply, and the field
and the field manager of a conflict. Imports: operator.planning, operator.groups, operator.pace.
PURE: no client, no clock (`now` is an argument), no asyncio.
"""
