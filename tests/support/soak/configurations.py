"""What a soak serves: four shapes of `octavo run`, which meet faults in different places."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Configuration:
    """flags: of `octavo run`. clients: requests under way at once, so many that the queue is used but not full."""

    name: str
    title: str
    flags: tuple[str, ...]
    clients: int
    groups: int = 2
    router_processes: int = 1
    caching: bool = True


_SCARCE = ("--replicas", "2", "--kv-cache-memory", "16Mi")

CONFIGURATIONS = {
    one.name: one
    for one in (
        Configuration(
            "a",
            "2 groups, 2 router processes",
            ("--replicas", "2", "--router-processes", "2", "--kv-cache-memory", "64Mi"),
            clients=48,
            router_processes=2,
        ),
        Configuration(
            "b",
            "2 groups of 2 stages of 2 ranks",
            ("--replicas", "2", "--pipeline", "2", "--tensor", "2", "--kv-cache-memory", "64Mi"),
            clients=40,
        ),
        Configuration("c", "2 groups that preempt: 16 MiB of KV cache", _SCARCE, clients=64),
        Configuration(
            "d", "the same without a prefix cache", (*_SCARCE, "--no-prefix-caching"), clients=64, caching=False
        ),
    )
}
