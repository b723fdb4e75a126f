"""Shared prefixes: which requests begin with the same tokens."""

from dataclasses import dataclass, field

import numpy as np

from simulator.arrays import Ints
from simulator.errors import WorkloadError


@dataclass(frozen=True, slots=True, eq=False)
class Prefixes:
    """Prefix blocks that requests share: request i begins with the blocks ids[first[i] : first[i] + count[i]].

    A prefix block is a fixed number of tokens; its id stands for all tokens of the prompt up to the block's end, so
    equal ids mean equal prefixes. All columns are int64: `first` and `count` of shape (requests,), `ids` with one entry
    per listed block (any numbers, renumbered 0 .. distinct - 1), `warm` with the positions in `ids` of the blocks that
    each replica has cached at the start, least recently used first. `prefix_block_tokens`: tokens per block, 0 for the
    engine's KV-cache block size.

    Raises WorkloadError for columns of different lengths, ids out of range, or one id twice in a request.

    >>> Prefixes.of([[7, 9], [], [7, 8, 5]]).ids
    array([1, 3, 1, 2, 0])
    """

    ids: Ints
    first: Ints
    count: Ints
    prefix_block_tokens: int = 0
    warm: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def __post_init__(self) -> None:
        dense = np.unique(np.asarray(self.ids, np.int64), return_inverse=True)[1]
        for name, given in (("ids", dense), ("first", self.first), ("count", self.count), ("warm", self.warm)):
            column = np.array(given, np.int64)
            column.setflags(write=False)
            object.__setattr__(self, name, column)
        if len(self.first) != len(self.count):
            raise WorkloadError("prefixes", "first and count differ in length", "Give one of each per request")
        if len(self) and (min(self.first.min(), self.count.min()) < 0 or (self.first + self.count).max() > len(dense)):
            raise WorkloadError("prefixes", "a request's ids lie outside of the list", "Check first and count")
        if len(self.warm) and not 0 <= self.warm.min() <= self.warm.max() < len(dense):
            raise WorkloadError("prefixes", "a warm block lies outside of the list", "Check warm")
        rows, ids = np.repeat(np.arange(len(self)), self.count), self.flat()
        keys = np.sort(rows * (self.distinct + 1) + ids)
        if (keys[1:] == keys[:-1]).any():
            because = "a request has one id twice, but each block has other tokens before it"
            raise WorkloadError("prefixes", because, "Make ids from all tokens up to the block's end")

    def __len__(self) -> int:
        return len(self.first)

    @classmethod
    def of(cls, lists: "list[list[int]]", prefix_block_tokens: int = 0) -> "Prefixes":
        """Return the prefixes of requests from one list of block ids per request.

        Raises WorkloadError for one id twice in a list.
        """
        count = np.array([len(each) for each in lists], np.int64)
        flat = np.array([block_id for each in lists for block_id in each], np.int64)
        return cls(flat, np.cumsum(count) - count, count, prefix_block_tokens)

    @property
    def distinct(self) -> int:
        """Number of different block ids."""
        return int(self.ids.max(initial=-1)) + 1

    def flat(self) -> Ints:
        """Return the block ids of all requests, one request after the other, shape (sum of `count`,), int64."""
        ends = np.cumsum(self.count)
        places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(self.first - (ends - self.count), self.count)
        flat: Ints = self.ids[places]
        return flat

    def head(self, requests: int) -> "Prefixes":
        """Return the prefixes of the first `requests` requests."""
        if requests >= len(self):
            return self
        return Prefixes(self.ids, self.first[:requests], self.count[:requests], self.prefix_block_tokens, self.warm)
