"""The InferenceService resource: its fields, its schema, its rules."""
