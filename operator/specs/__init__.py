"""One builder for each kind of object of a service: pure functions from the resource to Kubernetes JSON.

Process: the operator, and `octavo plan`. In: a resource, its revision, the operator's options. Out: Kubernetes JSON.
Imports: operator.groups, operator.api. PURE: no client, no clock, no asyncio.
"""
