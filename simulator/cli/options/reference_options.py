"""Options of the commands that run the reference engine, and their progress on stderr. Only `load` imports torch."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from typing import TYPE_CHECKING, Annotated

from typer import Option

if TYPE_CHECKING:
    from simulator.reference.checkpoint import Checkpoint
    from simulator.reference.transformer import Build

FIRST_LINE_S, NEXT_LINE_S = 2.0, 10.0  # seconds until the first line of progress, and between two of them


@dataclass(frozen=True)
class EngineOptions:
    """Which weights run on which device, in which number format, with how many threads and KV-cache blocks."""

    checkpoint: Annotated[
        str,
        Option(
            "--checkpoint",
            metavar="NAME",
            help="smollm2-135m, a Hugging Face folder, a .gguf file, or a preset or model profile (random weights).",
        ),
    ] = "smollm2-135m"
    profile: Annotated[
        str, Option("--model", metavar="NAME", help="Model profile of the checkpoint.", show_default="its own config")
    ] = ""
    device: Annotated[str, Option("--device", metavar="NAME", help="cpu or cuda.")] = "cpu"
    dtype: Annotated[str, Option("--dtype", metavar="NAME", help="fp32 or bf16: weights, activations, cache.")] = "fp32"
    threads: Annotated[
        int | None,
        Option("--threads", min=1, help="CPU threads.", show_default="the cores that other processes leave free"),
    ] = None
    blocks: Annotated[int, Option("--blocks", min=8, help="Cache blocks of 16 tokens.")] = 1024
    seed: Annotated[int, Option("--seed", min=0, help="Of random weights, prompts and arrivals.")] = 0

    def load(self, say: Callable[[str], None]) -> "tuple[Checkpoint, Build]":
        """Return the weights and how to build the engine, and set torch's number of threads.

        `say` is told each stage. The CPU use of other processes is sampled while torch is imported, which takes
        seconds: it decides the default number of threads.
        """
        say("importing torch")
        from simulator.reference.cores import Guard

        watch = Guard()
        from simulator.reference.catalogue import load_checkpoint
        from simulator.reference.device import Device
        from simulator.reference.threads import use_threads
        from simulator.reference.transformer import Build

        build = Build(Device(self.device, self.dtype), num_blocks=self.blocks)
        use_threads(self.threads, watch)
        say(f"getting the weights of {self.checkpoint}")
        return load_checkpoint(self.checkpoint, self.profile, self.seed), build

    def arguments(self) -> list[str]:
        """Return these options, without the threads, as words of a command line: the second process gets them."""
        words = ["--checkpoint", self.checkpoint, "--device", self.device, "--dtype", self.dtype]
        words += ["--model", self.profile] if self.profile else []
        return [*words, "--blocks", str(self.blocks), "--seed", str(self.seed)]

    def notes(self) -> list[str]:
        """Return a line that says on how many cores the engine ran, if other processes held some; else none."""
        import torch

        from simulator.reference.cores import usable_cores

        count, cores = torch.get_num_threads(), usable_cores()
        if self.threads is not None or self.device != "cpu" or count == cores:
            return []
        return [f"Threads: {count} of {cores}, as other processes held the other cores. --threads {cores} takes all."]


class Status:
    """What a command is doing or waiting for, and since when; calling it with a text begins the next stage."""

    def __init__(self, title: str, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._title, self._clock_s = title, clock_s
        self("starting")

    def __call__(self, what: str) -> None:
        """Begin the stage `what` now."""
        self._what, self._since_s = what, self._clock_s()

    @property
    def line(self) -> str:
        """One line for stderr: command, stage and the seconds since it began."""
        return f"infercast {self._title}: {self._what}, for {self._clock_s() - self._since_s:.0f} s\n"


@contextmanager
def status(title: str) -> Iterator[Status]:
    """Print the current stage on stderr from a thread, after two seconds and then every ten, until the block ends."""
    current, ended = Status(title), Event()
    printer = Thread(target=repeat_line, args=(current, ended.wait, sys.stderr.write), daemon=True)
    printer.start()
    try:
        yield current
    finally:
        ended.set()
        printer.join()


def repeat_line(current: Status, wait_for_end: Callable[[float], bool], write: Callable[[str], object]) -> None:
    """Write the line of a status every few seconds; `wait_for_end(seconds)` waits and returns whether it has ended."""
    pause_s = FIRST_LINE_S
    while not wait_for_end(pause_s):
        write(current.line)
        pause_s = NEXT_LINE_S
