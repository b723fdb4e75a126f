"""The prefix cache of the oracle (rule P of docs/serving-rules.md): units that are held, idle, or on the host."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class OracleCache:
    """Units by id; `blocks_per_prefix_block` is U, `host_prefix_blocks` is C."""

    blocks_per_prefix_block: int
    host_prefix_blocks: int = 0
    holders: dict[int, set[int]] = field(default_factory=dict)  # unit -> requests that hold it, never empty
    idle: list[int] = field(default_factory=list)  # least recent first
    host: list[int] = field(default_factory=list)  # least recent first

    def leading(self, ids: list[int]) -> int:
        """P3, P9: the longest leading run of these units that the cache or the host has."""
        run = 0
        while run < len(ids) and (ids[run] in self.holders or ids[run] in self.idle or ids[run] in self.host):
            run += 1
        return run

    def held_blocks(self) -> int:
        return self.blocks_per_prefix_block * len(self.holders)

    def hold(self, unit: int, request: int) -> bool:
        """P3, P5, P9: the request becomes a holder. Return whether the unit came from the host."""
        from_host = unit in self.host
        for place in (self.idle, self.host):
            if unit in place:
                place.remove(unit)
        self.holders.setdefault(unit, set()).add(request)
        return from_host

    def leave(self, request: int, units: list[int], covered: int) -> None:
        """P6: the request gives up its units, of which its computed tokens cover the first `covered`."""
        for position, unit in reversed(list(enumerate(units))):
            holders = self.holders.get(unit, set())
            if request in holders:
                holders.remove(request)
                if not holders:
                    del self.holders[unit]
            if unit in self.holders or position >= covered:
                continue
            for place in (self.idle, self.host):
                if unit in place:
                    place.remove(unit)
            self.idle.append(unit)

    def evict(self, free_blocks: int) -> None:
        """P7, P9: idle units give way to blocks that were taken, the least recent first."""
        while len(self.idle) * self.blocks_per_prefix_block > free_blocks:
            self.host.append(self.idle.pop(0))
            if len(self.host) > self.host_prefix_blocks:
                self.host.pop(0)
