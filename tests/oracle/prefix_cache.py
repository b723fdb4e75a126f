"""The prefix cache of the oracle (docs/serving-rules.md, P): prefix blocks that are held, idle, or on the host."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class OracleCache:
    """Prefix blocks by id; `blocks_per_prefix_block` is U, `host_prefix_blocks` is C."""

    blocks_per_prefix_block: int
    host_prefix_blocks: int = 0
    holders: dict[int, set[int]] = field(default_factory=dict)  # block -> requests that hold it, never empty
    idle: list[int] = field(default_factory=list)  # least recent first
    host: list[int] = field(default_factory=list)  # least recent first

    def leading(self, ids: list[int]) -> int:
        """P3, P9: the longest leading run of these prefix blocks that the cache or the host has."""
        run = 0
        while run < len(ids) and (ids[run] in self.holders or ids[run] in self.idle or ids[run] in self.host):
            run += 1
        return run

    def held_blocks(self) -> int:
        return self.blocks_per_prefix_block * len(self.holders)

    def hold(self, block: int, request: int) -> bool:
        """P3, P5, P9: the request becomes a holder. Return whether the block came from the host."""
        from_host = block in self.host
        for place in (self.idle, self.host):
            if block in place:
                place.remove(block)
        self.holders.setdefault(block, set()).add(request)
        return from_host

    def leave(self, request: int, prefix_blocks: list[int], covered: int) -> None:
        """P6: the request gives up its prefix blocks, of which its computed tokens cover the first `covered`."""
        for position, block in reversed(list(enumerate(prefix_blocks))):
            holders = self.holders.get(block, set())
            if request in holders:
                holders.remove(request)
                if not holders:
                    del self.holders[block]
            if block in self.holders or position >= covered:
                continue
            for place in (self.idle, self.host):
                if block in place:
                    place.remove(block)
            self.idle.append(block)

    def evict(self, free_blocks: int) -> None:
        """P7, P9: idle prefix blocks give way to blocks that were taken, the least recent first."""
        while len(self.idle) * self.blocks_per_prefix_block > free_blocks:
            self.host.append(self.idle.pop(0))
            if len(self.host) > self.host_prefix_blocks:
                self.host.pop(0)
