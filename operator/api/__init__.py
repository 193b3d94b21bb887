"""The InferenceService resource: its fields, its schema, its rules; and quantities, which fields are given in.

Process: the operator, `octavo crd`, `octavo plan`, `octavo run`. In: JSON. Out: frozen values, or what is wrong with
it. Imports: itself. PURE: no client, no clock, no asyncio.
"""
