"""The interface between a router's frontend and its dispatch: a job in, tokens or one error out.

Process: a router process. In and out: frozen values and protocols, the same for HTTP and gRPC.
Imports: octavo.shared. It decides nothing and does no I/O.
"""
