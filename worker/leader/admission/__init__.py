"""What the leader lets in: how many tokens each router may send, and whether a Submit is well formed.

Process: serve. In: the core's load, a router's message. Out: credit; a request, or the field that is wrong.
Imports: worker.messages, octavo.shared. PURE.
"""
