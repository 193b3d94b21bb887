"""A step as it lies on a GPU: what the host packs into one buffer, and what the device lays out of it.

Process: a rank with a GPU. In: rows, blocks and changes of the requests' state. Out: fixed buffers that all other
kernels read. Imports: torch, and kernels.cuda's library and checks.
"""
