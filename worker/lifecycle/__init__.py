"""The rules of an incarnation: which pods belong to it, when its silence is a failure, how long to wait for the next.

Process: supervisors, and the leader's server. In: times and heartbeats as arguments. Out: verdicts.
Imports: itself. PURE: no clock, no I/O.
"""
