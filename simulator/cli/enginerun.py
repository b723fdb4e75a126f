"""Options of the commands that run the reference engine, and what these say on stderr. Torch is imported by `load`."""

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

FIRST_LINE_S, NEXT_LINE_S = 2.0, 10.0


@dataclass(frozen=True)
class EngineOptions:
    """Which weights on which device."""

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
        """Return the weights and how to build the engine; sets the threads.

        Other processes are watched while torch is imported, which takes seconds.
        """
        say("importing torch")
        from simulator.reference.cores import Guard  # noqa: PLC0415

        watch = Guard()
        from simulator.reference.catalogue import load_checkpoint  # noqa: PLC0415
        from simulator.reference.device import Device  # noqa: PLC0415
        from simulator.reference.threads import use_threads  # noqa: PLC0415
        from simulator.reference.transformer import Build  # noqa: PLC0415

        build = Build(Device(self.device, self.dtype), num_blocks=self.blocks)
        use_threads(self.threads, watch)
        say(f"getting the weights of {self.checkpoint}")
        return load_checkpoint(self.checkpoint, self.profile, self.seed), build

    def arguments(self) -> list[str]:
        """Return these options but the threads as words of a command line."""
        words = ["--checkpoint", self.checkpoint, "--device", self.device, "--dtype", self.dtype]
        words += ["--model", self.profile] if self.profile else []
        return [*words, "--blocks", str(self.blocks), "--seed", str(self.seed)]

    def notes(self) -> list[str]:
        """Say in a line that the engine ran on fewer threads than it might, if it did."""
        import torch  # noqa: PLC0415

        from simulator.reference.cores import usable_cores  # noqa: PLC0415

        count, cores = torch.get_num_threads(), usable_cores()
        if self.threads is not None or self.device != "cpu" or count == cores:
            return []
        return [f"Threads: {count} of {cores}, as other processes held the other cores. --threads {cores} takes all."]


class Status:
    """What a command does now, or waits for, and since when."""

    def __init__(self, title: str, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._title, self._clock_s = title, clock_s
        self("starting")

    def __call__(self, what: str) -> None:
        """Note that this is what is done from now on."""
        self._what, self._since_s = what, self._clock_s()

    @property
    def line(self) -> str:
        """Say it."""
        return f"infercast {self._title}: {self._what}, for {self._clock_s() - self._since_s:.0f} s\n"


@contextmanager
def status(title: str) -> Iterator[Status]:
    """Say on stderr what is done, after two seconds and then every ten, until it is over."""
    told, over = Status(title), Event()
    teller = Thread(target=repeat_line, args=(told, over.wait, sys.stderr.write), daemon=True)
    teller.start()
    try:
        yield told
    finally:
        over.set()
        teller.join()


def repeat_line(told: Status, over: Callable[[float], bool], write: Callable[[str], object]) -> None:
    """Write the line of a status again and again until it is over; `over` waits so many seconds and tells whether."""
    pause_s = FIRST_LINE_S
    while not over(pause_s):
        write(told.line)
        pause_s = NEXT_LINE_S
