"""Options of the commands that run the reference engine, and its progress on stderr."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

from rich.console import Console
from rich.status import Status as RichStatus
from typer import Option

from simulator.reference.catalogue import load_checkpoint
from simulator.reference.checkpoint import Checkpoint
from simulator.reference.device import Device, use_threads
from simulator.reference.transformer import Build


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
        int | None, Option("--threads", min=1, help="CPU threads; one is steadier beside others.", show_default="all")
    ] = None
    blocks: Annotated[int, Option("--blocks", min=8, help="Cache blocks of 16 tokens.")] = 1024
    seed: Annotated[int, Option("--seed", min=0, help="Of random weights, prompts and arrivals.")] = 0

    def load(self) -> tuple[Checkpoint, Build]:
        """Return the weights and how to build the engine; sets the threads."""
        build = Build(Device(self.device, self.dtype), num_blocks=self.blocks)
        use_threads(self.threads)
        return load_checkpoint(self.checkpoint, self.profile, self.seed), build

    def arguments(self) -> list[str]:
        """Return these options as words of a command line."""
        words = ["--checkpoint", self.checkpoint, "--device", self.device, "--dtype", self.dtype]
        words += ["--model", self.profile] if self.profile else []
        words += ["--threads", str(self.threads)] if self.threads else []
        return [*words, "--blocks", str(self.blocks), "--seed", str(self.seed)]


@dataclass(frozen=True, slots=True)
class Status:
    """A line on stderr that says what is done now."""

    title: str
    line: RichStatus

    def __call__(self, what: str) -> None:
        """Say it."""
        self.line.update(f"{self.title}: {what}")


@contextmanager
def status(title: str) -> Iterator[Status]:
    """Show what is measured while it lasts, where stderr is a terminal."""
    with Console(stderr=True).status(title) as line:
        yield Status(title, line)
