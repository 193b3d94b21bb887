"""The health of an incarnation's processes, read from its board."""

from octavo.proto.v1 import group_pb2
from octavo.worker.config import Config
from octavo.worker.ipc import shared_board as boards
from octavo.worker.ipc.shared_board import Board, ProcessSlot
from octavo.worker.lifecycle.liveness import ProcessHealth

_PHASES, _TRANSPORTS = group_pb2.Phase.values(), group_pb2.Transport.values()


class Heartbeats:
    """In the leader's pod the board shows every rank of the group, in others the pod's own."""

    def __init__(self, board: Board, config: Config) -> None:
        self._board = board
        layout = config.layout
        self._own = layout.ranks_of(config.pod_index)
        self._ranks = range(layout.ranks) if config.leads else self._own
        self._leaders = (boards.SERVE, boards.CORE) if config.leads else ()

    def processes(self) -> list[ProcessHealth]:
        """Of serve, core and all ranks."""
        leaders = [self._health("serve", -1, boards.SERVE), self._health("core", -1, boards.CORE)]
        return leaders + [self._health("rank", rank, boards.RANK + rank) for rank in self._ranks]

    def _health(self, name: str, rank: int, slot: int) -> ProcessHealth:
        read = self._board.read
        return ProcessHealth(
            name, rank, read(slot, ProcessSlot.HEARTBEAT), read(slot, ProcessSlot.PHASE),
            read(slot, ProcessSlot.PROGRESS), read(slot, ProcessSlot.DEADLINE),
            read(slot, ProcessSlot.FINISHED), beats=rank < 0,
        )  # fmt: skip

    @property
    def serving(self) -> bool:
        """Whether every process that is shown here does its work."""
        slots = [*self._leaders, *(boards.RANK + rank for rank in self._ranks)]
        return all(self._board.read(slot, ProcessSlot.PHASE) == group_pb2.SERVING for slot in slots)

    def loading(self) -> tuple["group_pb2.Phase.ValueType", int]:
        """(phase, percent) of the rank that has got least far; warming once all of them are there."""
        slowest = min((self._of(rank) for rank in self._ranks), default=(0, 0))
        phase, percent = slowest
        return (_PHASES[phase or group_pb2.STARTING] if phase < group_pb2.SERVING else group_pb2.WARMING), percent

    def _of(self, rank: int) -> tuple[int, int]:
        slot = boards.RANK + rank
        return self._board.read(slot, ProcessSlot.PHASE), self._board.read(slot, ProcessSlot.PROGRESS)

    def transports(self, word: ProcessSlot) -> list["group_pb2.Transport.ValueType"]:
        """What the ranks have chosen, of COLLECTIVE or ACTIVATIONS: one, unless they differ."""
        chosen = {self._board.read(boards.RANK + rank, word) for rank in self._ranks}
        return [transport for transport in _TRANSPORTS if transport and transport in chosen]

    def heartbeat(self, now_ns: int) -> group_pb2.Heartbeat:
        """Of the pod's own ranks. One may beat while it is looked at, later than now_ns."""
        read = self._board.read
        return group_pb2.Heartbeat(
            ranks=[
                group_pb2.RankHeartbeat(
                    phase=_PHASES[read(slot, ProcessSlot.PHASE)],
                    progress_percent=read(slot, ProcessSlot.PROGRESS),
                    finished_step=read(slot, ProcessSlot.FINISHED),
                    collective=_TRANSPORTS[read(slot, ProcessSlot.COLLECTIVE)],
                    activations=_TRANSPORTS[read(slot, ProcessSlot.ACTIVATIONS)],
                    silent_ms=max(0, now_ns - (read(slot, ProcessSlot.HEARTBEAT) or now_ns)) // 1_000_000,
                )
                for slot in (boards.RANK + rank for rank in self._own)
            ]
        )
