"""The rules of dispatch: which job enters the queue and goes next, what credit covers, which leaders an EndpointSlice
names.

Process: a router process. In: values, the time included. Out: decisions. Imports: nothing. PURE.
"""
