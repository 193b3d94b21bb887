"""The scheduler: which tokens of which requests the next step computes, and what a step's result means.

Process: core. In: requests, results, the time as an argument. Out: Step and Output (worker.messages).
Imports: worker.messages. PURE: no clock, no randomness, no I/O, no torch.
"""
