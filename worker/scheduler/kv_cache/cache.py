"""The KV cache as requests hold it: blocks in the order of their tokens, some shared with others by prefix.

request.blocks   | hit | hit | own | own | own..|
request.indexed  ---------------->                 offered to the prefix cache: issued and known
"""

from array import array
from collections.abc import Iterable

from octavo.shared.hashing import ROOT, block_hashes
from octavo.worker.messages.limits import Limits
from octavo.worker.messages.request import Request
from octavo.worker.scheduler.kv_cache.blocks import Blocks
from octavo.worker.scheduler.kv_cache.prefix import Prefix


class Cache:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._size = limits.block_size
        self._prefix = Prefix()
        self.blocks = Blocks(limits.blocks, self._prefix)
        self.queried_tokens = 0  # looked up at admissions
        self.hit_tokens = 0

    def shares(self, request: Request) -> bool:
        """Whether it may start from blocks that others computed: log-probabilities of a prompt need all positions."""
        return self._limits.prefix_caching and (request.scoring is None or request.scoring.done)

    def hits(self, request: Request) -> list[int]:
        """Cached blocks it could start from; the last known token is always computed, since its logits are wanted."""
        if not self.shares(request):
            return []
        usable = self._usable(request)
        self._hash(request, usable)
        return self._prefix.match(request.hashes[:usable])

    def is_coming(self, request: Request, hits: list[int], others: Iterable[Request]) -> bool:
        """Whether one of `others`, which are computed, will soon offer the next block that it lacks."""
        entry = len(hits)
        if entry >= self._usable(request) or not self.shares(request):
            return False
        digest = request.hashes[entry]
        return any(other.indexed <= entry < len(other.hashes) and other.hashes[entry] == digest for other in others)

    def fits(self, request: Request, hits: list[int], spare: int) -> bool:
        """Whether its known tokens fit and leave `spare` blocks free."""
        return self.blocks.free - self.blocks.idle(hits) - self._fresh(request, hits) >= spare

    def admit(self, request: Request, hits: list[int]) -> None:
        """Blocks for all known tokens; what the hits hold counts as issued."""
        self.blocks.share(hits)
        request.blocks = [*hits, *(self.blocks.take() for _ in range(self._fresh(request, hits)))]
        request.indexed = len(hits)
        request.issued = len(hits) * self._size
        self.queried_tokens += request.known
        self.hit_tokens += request.issued

    def grow(self, request: Request) -> int:
        """One more block for its next tokens."""
        block = self.blocks.take()
        request.blocks.append(block)
        return block

    def index(self, request: Request) -> None:
        """Offer its full blocks of issued, known tokens to the prefix cache."""
        full = min(request.issued, request.known) // self._size
        if full <= request.indexed or not self._limits.prefix_caching:
            return
        self._hash(request, full)
        for entry in range(request.indexed, full):
            self._prefix.add(request.hashes[entry], request.blocks[entry])
        request.indexed = full

    def give_back(self, request: Request) -> None:
        """Release its blocks, tail first: the cache shall lose the ends of prefixes before their beginnings."""
        self.blocks.release(reversed(request.blocks))
        request.blocks = []

    def poison(self, request: Request) -> None:
        """No request shall find what this one computed or shared."""
        self.blocks.poison(request.hashes)

    def _usable(self, request: Request) -> int:
        return (request.known - 1) // self._size

    def _fresh(self, request: Request, hits: list[int]) -> int:
        return self._limits.blocks_for(request.known) - len(hits)

    def _hash(self, request: Request, blocks: int) -> None:
        """Know the hashes of its first `blocks` blocks; hashes of generated tokens come with time."""
        have = len(request.hashes)
        if have < blocks:
            ids = array("I", request.tokens[have * self._size : blocks * self._size]).tobytes()
            parent = request.hashes[-1] if have else ROOT
            request.hashes += block_hashes(ids, request.new.salt, self._size, parent)
