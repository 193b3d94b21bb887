"""Routing policies: which of several groups gets a request, one policy a file.

Process: a router process. In: a prompt's hashes and the groups' load. Out: a group. Imports: octavo.shared. PURE.
"""
