"""Errors of the operator.

OperatorError
├── SpecError              a field of a resource has an invalid value
├── Unreadable             a file of `octavo plan` holds no valid service
├── PlanFailed             some steps of a plan failed, the others were executed
├── WriteError             a write was not sent
│   ├── NotLeading         the Lease is not held, or not the namespace's
│   ├── Postponed          others change the object back, or it was written too often
│   ├── TemplateKept       a revision keeps another pod template, which the plan did not know
│   └── NameConflict       the name is in use by an object with another owner
├── KubeError              the API server refused a call
│   └── KubeUnreachable    it did not answer
└── OldCRD                 the cluster's CRD lacks fields of this operator
"""


class OperatorError(Exception):
    """Root of the operator's errors."""
