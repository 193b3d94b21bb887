"""Messages between the processes of a worker: requests, steps, outputs, capabilities of ranks; and their bytes.

Process: core, ranks and the leader's server. In and out: frozen values; codec.py packs them for rings and streams.
Imports: worker.config, octavo.shared, and itself. PURE: no clock, no I/O.
"""
