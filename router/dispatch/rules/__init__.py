"""The rules of dispatch: who may enter the queue and go next, what credit covers, which leaders an EndpointSlice names.

Process: a router process. In: values, the time included. Out: decisions. Imports: nothing. PURE.
"""
