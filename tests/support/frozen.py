"""Imported last by what processes are forked from: none of them goes through, and so copies, what all of them share."""

import gc

gc.collect()
gc.freeze()
