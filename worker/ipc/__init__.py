"""What links the processes of one pod: rings and a board in shared memory, and what a child inherits.

Process: all of a worker. In and out: records of bytes, gauges, descriptors. Imports: worker.config, worker.errors.
"""
