"""What to do about one service: plan(service, snapshot, options, now) -> Plan, with a reason for each object.

Process: the operator, and `octavo plan`. In: a resource and a Snapshot. Out: objects to apply and to delete, status,
events. Imports: operator.api, operator.groups, operator.specs. PURE: no client, no clock, no asyncio.
"""
