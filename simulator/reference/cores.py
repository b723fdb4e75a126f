"""CPU cores: how many this process may use, and how many other processes use meanwhile. Needs no torch."""

import os
import time
from math import ceil, isnan
from pathlib import Path

STAT, PROCESSES = Path("/proc/stat"), Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
TOLERATED_CORES = 0.25  # of others, per core given up: below it another thread of ours gains more than it waits


class Guard:
    """Counts the CPU time that other processes have used since it was made; NaN where the machine does not say."""

    def __init__(self) -> None:
        self._start = _busy_and_own_s()
        self._start_s = time.perf_counter()

    @property
    def elapsed_s(self) -> float:
        """Seconds since then."""
        return time.perf_counter() - self._start_s

    @property
    def others_s(self) -> float:
        """CPU seconds of others since then; a few ticks of 10 ms too many or too few, so it may be below 0."""
        now = _busy_and_own_s()
        if now is None or self._start is None:
            return float("nan")
        return (now[0] - self._start[0]) - (now[1] - self._start[1])

    @property
    def others_cores(self) -> float:
        """Cores that others used on average since then; NaN where the machine does not say."""
        share = self.others_s / self.elapsed_s
        return share if isnan(share) else max(0.0, share)


def usable_cores() -> int:
    """Return the cores that this process may use: those of its affinity, and not more than its cgroup's quota."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min(affinity, _quota_cores())))


def free_cores(watch: Guard) -> int:
    """Return the usable cores that other processes have left free since the watch began, at least 1."""
    others = watch.others_cores
    taken = 0 if isnan(others) else ceil(others - TOLERATED_CORES)
    return max(1, min(usable_cores(), (os.cpu_count() or 1) - taken))


def _quota_cores() -> float:
    """Return the CPU seconds per second that the cgroups (version 2) above this process allow."""
    path = PROCESSES / "self" / "cgroup"
    lines = path.read_text(encoding="ascii").splitlines() if path.is_file() else []
    group = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
    allowed = float("inf")
    for folder in (CGROUPS / group, *(CGROUPS / group).parents):
        limit = folder / "cpu.max"
        if limit.is_file():
            quota, _, period = limit.read_text(encoding="ascii").partition(" ")
            allowed = min(allowed, allowed if quota == "max" else int(quota) / int(period))
    return allowed


def _busy_and_own_s() -> tuple[float, float] | None:
    """Return the CPU seconds of all cores that were not idle, and those of this process, its threads and children."""
    if not STAT.is_file():
        return None
    ticks = [int(each) for each in STAT.read_text(encoding="ascii").splitlines()[0].split()[1:]]
    user, nice, system, _idle, _iowait, irq, softirq, *_ = ticks
    own = os.times()
    busy = (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
    ended_s = own.children_user + own.children_system
    return busy, own.user + own.system + ended_s + _running_children_s()


def _running_children_s() -> float:
    """Return the CPU seconds of the children that still run: `os.times` counts a child when it has ended."""
    listed = PROCESSES / "self" / "task" / str(os.getpid()) / "children"
    try:
        stats = [(PROCESSES / child / "stat").read_text(encoding="utf-8") for child in listed.read_text().split()]
    except OSError:  # one has just ended, or this kernel does not list them
        return 0.0
    return sum(sum(map(int, stat.rpartition(")")[2].split()[11:15])) for stat in stats) / os.sysconf("SC_CLK_TCK")
