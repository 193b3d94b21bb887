"""Reference counts over a fixed pool of blocks; every operation is O(1) a block.

    used (count > 0)  --release-->  cached: has a prefix hash, oldest release first   --take (last resort)--> used
                      --release-->  blank:  holds nothing worth keeping               --take (first)--------> used
    cached --share--> used: a prefix hit

free = blank + cached, and used + free = total, always.
"""

from collections import OrderedDict
from collections.abc import Iterable

from octavo.worker.scheduler.kv_cache.prefix import Prefix


class Blocks:
    def __init__(self, total: int, prefix: Prefix) -> None:
        self.total = total
        self._prefix = prefix
        self._uses = [0] * total
        self._blank = list(range(total - 1, -1, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()

    @property
    def free(self) -> int:
        return len(self._blank) + len(self._cached)

    @property
    def cached(self) -> int:
        return len(self._cached)

    def uses(self, block: int) -> int:
        return self._uses[block]

    def idle(self, blocks: Iterable[int]) -> int:
        """How many of `blocks` are unused: sharing them takes them off the free ones."""
        return sum(not self._uses[block] for block in blocks)

    def take(self) -> int:
        """A block for the caller alone; the longest unused cached contents go when no blank one is left."""
        if self._blank:
            block = self._blank.pop()
        else:
            block, _ = self._cached.popitem(last=False)
            self._prefix.forget(block)
        self._uses[block] = 1
        return block

    def share(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            if not self._uses[block]:
                del self._cached[block]
            self._uses[block] += 1

    def release(self, blocks: Iterable[int]) -> None:
        """Give back in this order: what is released first is the first to lose its contents."""
        for block in blocks:
            self._uses[block] -= 1
            assert self._uses[block] >= 0, f"block {block} was released more often than taken"
            if not self._uses[block]:
                if block in self._prefix:
                    self._cached[block] = None
                else:
                    self._blank.append(block)

    def forget(self) -> None:
        """The contents of all blocks are lost; none is in use."""
        while self._cached:
            block, _ = self._cached.popitem()
            self._prefix.forget(block)
            self._blank.append(block)

    def poison(self, hashes: Iterable[bytes]) -> None:
        """Contents that must not be found again, though some may still use them."""
        for digest in hashes:
            block = self._prefix.find(digest)
            if block is not None:
                self._prefix.forget(block)
                if not self._uses[block]:
                    del self._cached[block]
                    self._blank.append(block)
