"""The KV cache as the scheduler sees it: numbers of blocks, what they hold, and which prefixes can be shared.

Process: core. In: requests that grow and end. Out: block numbers; blocks to zero after a failed request.
Imports: worker.messages, octavo.shared. PURE.
"""
