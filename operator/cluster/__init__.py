"""The Kubernetes API as the operator uses it: informers, server-side apply, lease, events, certificates, group status.

Process: the operator. In: watch events and actions of a Plan. Out: cached objects and writes.
Imports: operator.planning, operator.groups, operator.api, operator.metrics; kopf only through kopf_import.
"""
