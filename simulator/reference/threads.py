"""Threads that torch computes on: as many as there are cores that no other process uses.

Threads wait for each other some 200 times a step, and spin meanwhile. Where another process holds one of their cores,
each wait lasts until the operating system gives that core back, a few milliseconds, and a step takes 30 times as long.
Threads that sleep instead cost half as much again on a quiet machine.
"""

import time

import torch

from simulator.errors import InfercastError
from simulator.reference.cores import Guard, free_cores, usable_cores

LEAST_WATCHED_S = 0.3  # /proc/stat counts in ticks of 10 ms
LOOK_EVERY_S = 0.5


def use_threads(count: int | None, watch: Guard) -> None:
    """Compute on so many CPU threads; without a number on the cores that others left free since the watch began."""
    cores = usable_cores()
    if count is not None and count > cores:
        raise InfercastError(f"{count} threads", f"this process may use {cores} cores", f"Give {cores} or less")
    if count is None:
        time.sleep(max(0.0, LEAST_WATCHED_S - watch.elapsed_s))
    torch.set_num_threads(count or free_cores(watch))


class FollowFreeCores:
    """Called before a step: twice a second it sets the threads to the cores that others have left free since."""

    def __init__(self) -> None:
        self._watch = Guard()

    def __call__(self) -> None:
        """Look, if it is time."""
        if self._watch.elapsed_s < LOOK_EVERY_S:
            return
        count = free_cores(self._watch)
        if count != torch.get_num_threads():
            torch.set_num_threads(count)
        self._watch = Guard()
