"""The schema of the InferenceService, by the part of the resource; api/schema.py puts the parts together.

Process: the operator, `octavo crd`, `octavo plan`, `octavo run`. In: nothing. Out: OpenAPI schemas as JSON.
Imports: the fields and device tables of operator.api. PURE.
"""
