"""Conditions of a service, one a file: `verdict(facts)` of the module that is named like the condition.

Process: the operator, and `octavo plan`. In: Facts of one observation. Out: status, reason and message of each
condition. Imports: planning.diagnosis, operator.api, operator.groups. PURE.
"""
