"""The runner for NVIDIA GPUs: nothing of a step waits for the host.

Process: a rank with a GPU. In: Step. Out: StepResult, copied up while the next step runs. Imports: as worker.runner,
and worker.runner.cpu for what both sample by.
"""
