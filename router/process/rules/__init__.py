"""The rules of a router's parent process: when a child that exists counts as dead, and how counts of several add up.

Process: the parent. In: times and samples as arguments. Out: verdicts, one page of metrics. Imports: itself. PURE.
"""
