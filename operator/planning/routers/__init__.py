"""The routers of a service: how many are as desired and reach a group, and the state of their API keys.

Process: the operator, and `octavo plan`. In: router pods, and what routers answered. Out: numbers, causes, and until
when routers with other keys may serve. Imports: planning.diagnosis, operator.api, operator.groups, operator.specs.
PURE.
"""
