"""One service's objects as a Snapshot: from the caches, and from what pods, nodes and events say beside them.

Process: the operator. In: the informers' caches, answers of the API server and of pods. Out: a Snapshot.
Imports: the clients of operator.cluster, and the values of groups and planning.
"""
