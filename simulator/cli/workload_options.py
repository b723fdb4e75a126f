"""Options that say what users send and what they accept, shared by the commands that simulate."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.progress import Progress as Bar
from typer import Option

from simulator.cli.options import split
from simulator.errors import InfercastError, WorkloadError
from simulator.reports.slo import Slo, parse_slo
from simulator.simulation.engine_loop import Progress
from simulator.workloads.arrivals import Arrivals, ClosedLoop, OpenLoop
from simulator.workloads.lengths import Distribution, Fixed, Independent, Lengths, LogNormal, Uniform
from simulator.workloads.workload import Workload, load_workload


@dataclass(frozen=True)
class WorkloadOptions:
    """What users send: a preset, a trace or plain lengths, at a rate or a concurrency."""

    workload: Annotated[
        str, Option("--workload", metavar="NAME", help="Preset: chat, code, rag, reasoning, summarize.")
    ] = ""
    trace: Annotated[
        Path | None,
        Option("--trace", metavar="FILE", help="Requests to replay: CSV (Azure, BurstGPT, ours) or Mooncake."),
    ] = None
    input_len: Annotated[
        str,
        Option(
            "--input-len", "--isl", metavar="N", help="Prompt tokens; also uniform:LOW:HIGH or lognormal:MEAN:CV[:MAX]."
        ),
    ] = ""
    output_len: Annotated[
        str, Option("--output-len", "--osl", metavar="N", help="Output tokens, in the same spellings.")
    ] = ""
    range_ratio: Annotated[
        float,
        Option("--range-ratio", "--random-range-ratio", help="Spread lengths evenly by this share around them."),
    ] = 0.0
    rate: Annotated[
        str,
        Option(
            "--rate",
            "--request-rate",
            metavar="N,..",
            help="Requests per second, inf for all at once; a trace is stretched to it.",
        ),
    ] = ""
    burstiness: Annotated[
        float | None,
        Option("--burstiness", help="1 Poisson, below 1 bursty, inf even.", show_default="the preset's, or 1"),
    ] = None
    max_concurrency: Annotated[
        int | None, Option("--max-concurrency", help="Closed loop: requests in flight, instead of a rate.")
    ] = None
    num_prompts: Annotated[
        int | None, Option("--num-prompts", help="Requests to simulate.", show_default="10000, or the whole trace")
    ] = None
    seed: Annotated[int, Option("--seed", help="Seed of arrivals and lengths.")] = 0

    def workloads(self) -> list[tuple[float | None, Workload]]:
        """Return one workload per rate, or the one of a closed loop or of a trace at its own rate."""
        self._refuse_contradictions()
        if self.trace is not None:
            return self._replays(self.trace)
        count = self.num_prompts if self.num_prompts is not None else 10_000
        lengths, burstiness, name = self._lengths()
        if self.max_concurrency is not None:
            return [(None, Workload(ClosedLoop(self.max_concurrency), lengths, count, self.seed, name))]
        rates = self.rates()
        if not rates:
            raise WorkloadError("neither --rate nor --max-concurrency", "nobody sends anything", "Give, say, --rate 2")
        found: list[tuple[float | None, Workload]] = []
        for rate in rates:
            at_once = math.isinf(rate) and rate > 0
            arrivals: Arrivals = ClosedLoop(count) if at_once else OpenLoop(rate, burstiness)
            found.append((None if at_once else rate, Workload(arrivals, lengths, count, self.seed, name)))
        return found

    def rates(self) -> list[float]:
        """Return the rates that were asked for."""
        return [_number(each, "--rate") for each in split(self.rate, "--rate")] if self.rate else []

    def _refuse_contradictions(self) -> None:
        plain = bool(self.input_len or self.output_len)
        given = [name for name, is_given in (
            ("--workload", bool(self.workload)), ("--trace", self.trace is not None), ("--isl and --osl", plain),
        ) if is_given]  # fmt: skip
        if len(given) != 1:
            because = "they say different things" if given else "the lengths of the requests are not known"
            raise WorkloadError(
                " with ".join(given) or "no workload", because, "Give one of --workload, --trace, or --isl and --osl"
            )
        if plain and not (self.input_len and self.output_len):
            raise WorkloadError(
                f"{given[0]} in part", "a request has a prompt and an output", "Give both --isl and --osl"
            )
        if self.range_ratio and not plain:
            raise WorkloadError(f"--range-ratio with {given[0]}", "its lengths are its own", "Leave --range-ratio out")
        if self.burstiness is not None and (self.trace is not None or self.max_concurrency is not None):
            because = "only requests at a rate of your own have gaps to draw"
            raise WorkloadError("--burstiness with --trace or --max-concurrency", because, "Leave --burstiness out")
        if self.rate and self.max_concurrency is not None:
            because = "the rate of a closed loop is an outcome"
            raise WorkloadError("--rate with --max-concurrency", because, "Give one of the two")

    def _lengths(self) -> tuple[Lengths, float, str]:
        if self.workload:
            preset = load_workload(self.workload)
            shape = float(preset.burstiness) if self.burstiness is None else self.burstiness
            return preset.lengths, shape, self.workload
        sides = (("--isl", self.input_len), ("--osl", self.output_len))
        prompts, outputs = (_distribution(text, self.range_ratio, option) for option, text in sides)
        return Independent(prompts, outputs), 1.0 if self.burstiness is None else self.burstiness, ""

    def _replays(self, path: Path) -> list[tuple[float | None, Workload]]:
        from simulator.workloads.traces import read_trace  # noqa: PLC0415  pandas takes half a second

        replay = Workload.from_trace(read_trace(path), self.num_prompts)
        if self.max_concurrency is not None:
            return [(None, replace(replay, arrivals=ClosedLoop(self.max_concurrency)))]
        own: Any = replay.arrivals
        return [(rate, replay.at_rate(rate)) for rate in self.rates()] or [(own.rate_per_s, replay)]


@dataclass(frozen=True)
class SloOptions:
    """What users accept."""

    slo: Annotated[
        str, Option("--slo", metavar="BOUNDS", help="Say ttft:500ms,tpot:50ms (ttft, tpot, e2el, queue).")
    ] = ""
    slo_share: Annotated[float, Option("--slo-share", help="Share of requests that must keep every bound.")] = 0.95

    def value(self) -> Slo:
        """Return the bounds."""
        return parse_slo(self.slo, self.slo_share)


def _number(text: str, option: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InfercastError(f"{option} {text!r}", "it is not a number", f"Give, say, {option} 2") from None


def _distribution(text: str, range_ratio: float, option: str) -> Distribution:
    """Read the lengths of one side: 512, uniform:256:1024, or lognormal:MEAN:CV[:MAX].

    >>> _distribution("lognormal:512:0.8", 0.0, "--isl")
    LogNormal(mean_tokens=512.0, cv=0.8, max_tokens=2147483647)
    """
    kind, *given = text.split(":")
    tokens = partial(_tokens, option=option)
    if not given:
        return Uniform.around(tokens(text), range_ratio) if range_ratio else Fixed(tokens(text))
    if range_ratio:
        raise WorkloadError(f"--range-ratio with {option} {text}", "its lengths have a spread of their own", "Give one")
    if kind == "uniform" and len(given) == 2:
        return Uniform(*map(tokens, given))
    if kind == "lognormal" and len(given) in (2, 3):
        return LogNormal(_number(given[0], option), _number(given[1], option), *map(tokens, given[2:]))
    remedy = f"Write {option} 512, uniform:256:1024, or lognormal:512:0.8 (mean, deviation over mean, and a maximum)"
    raise WorkloadError(f"{option} {text}", "it names no lengths", remedy)


def _tokens(text: str, option: str) -> int:
    try:
        return int(text)
    except ValueError:
        remedy = f"Give, say, {option} 512"
        raise WorkloadError(f"{option} {text!r}", "it is not a whole number of tokens", remedy) from None


@contextmanager
def progress_bar(label: str) -> Iterator[Progress]:
    """Show on stderr how many requests are finished, while a run lasts and where stderr is a terminal."""
    console = Console(stderr=True)
    with Bar(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=None)
        yield lambda finished, requests: bar.update(task, completed=finished, total=requests)
