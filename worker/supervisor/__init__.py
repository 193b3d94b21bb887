"""Pid 1 of a worker pod: it checks the model, runs one incarnation after another, and says how the group is.

Process: supervisor. In: flags, signals, heartbeats on the board, exits of children. Out: processes, pages for the
kubelet, the group's status. Imports: every package of worker but runner and scheduler. No torch.
"""
