"""A group of pods whose processes a test holds at chosen points (support/processes/gates.py)."""

from functools import partial
from pathlib import Path

from support.processes.gates import Gate, main
from support.worker.group import GroupProcesses
from support.worker.worker import until


class GatedGroup(GroupProcesses):
    """Each pod has one rank."""

    def __init__(self, model: Path, tensor: int, pipeline: int) -> None:
        super().__init__(model, tensor, pipeline, 1)
        for pod in self.pods:
            pod.main = partial(main, str(pod.folder))

    def gate(self, pod: int, point: str) -> Gate:
        return Gate(self.pods[pod].folder, point)

    async def come(self, pod: int, point: str) -> None:
        """Until a process waits at this gate."""
        await until(lambda: bool(self.gate(pod, point).waiting), why=self.text)
