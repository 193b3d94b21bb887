"""The runner for CPUs: steps run where they are issued.

Process: a rank without a GPU. In: Step. Out: StepResult. Imports: as worker.runner.
"""
