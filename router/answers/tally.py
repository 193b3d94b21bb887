"""Running totals of a router process, for its metrics."""


class Tally:
    """Plain integers, as they change with every token."""

    __slots__ = ("cached_tokens", "completion_tokens", "merged_writes", "prompt_tokens", "retokenised")

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.cached_tokens = 0
        self.merged_writes = 0
        self.retokenised = 0
