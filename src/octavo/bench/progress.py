"""How far a run is: a bar on a terminal, a line for each tenth elsewhere."""

import sys
from types import TracebackType

from tqdm import tqdm


class Progress:
    """A context manager. quiet: says nothing at all."""

    def __init__(self, title: str, total: int, *, quiet: bool = False) -> None:
        self._title, self._total, self._quiet = title, total, quiet
        self._done = self._failed = 0
        terminal = sys.stderr.isatty() and not quiet
        self._bar = tqdm(total=total, desc=title, file=sys.stderr, dynamic_ncols=True) if terminal else None

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def step(self, *, failed: bool = False) -> None:
        """One more is over."""
        before = self._done
        self._done += 1
        self._failed += failed
        if self._bar is not None:
            if failed:
                self._bar.set_postfix(failed=self._failed, refresh=False)
            self._bar.update()
        elif not self._quiet and self._done * 10 // self._total > before * 10 // self._total:
            self._print_line()

    def _print_line(self) -> None:
        failed = f", {self._failed} failed" if self._failed else ""
        print(f"{self._title}: {self._done} of {self._total}{failed}", file=sys.stderr, flush=True)
