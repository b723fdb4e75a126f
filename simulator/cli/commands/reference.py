"""`infercast reference generate`: generate text with the engine that predictions are checked against."""

from typing import Annotated

from typer import Argument, Option

from simulator.cli.numbers import number
from simulator.cli.options.deployment_options import OutputFormat, grouped
from simulator.cli.options.reference_options import EngineOptions, status
from simulator.cli.output import Column, Result, View, emit
from simulator.cli.text_layout import Format
from simulator.errors import InfercastError

ACTIONS = ("generate",)


@grouped
def command(
    engine: EngineOptions,
    action: Annotated[str, Argument(help="generate")],
    texts: Annotated[list[str], Argument(help="Prompts; several are computed side by side.")],
    max_tokens: Annotated[int, Option("--max-tokens", min=1, help="Tokens to generate at most.")] = 48,
    form: OutputFormat = Format.TEXT,
) -> None:
    """Generate text with the reference engine: greedy, paged cache, continuous batching.

    It shows that the engine under the predictions is a real one.
    """
    if action not in ACTIONS:
        raise InfercastError(f"reference {action!r}", "it knows one action", "Give: reference generate TEXT")
    with status("reference") as progress:
        checkpoint, build = engine.load(progress)
        from simulator.reference.clock import WallClock
        from simulator.reference.generation import generate
        from simulator.reference.threads import FollowFreeCores

        progress(f"generating {max_tokens} tokens")
        clock = WallClock() if engine.threads else WallClock(before_step=FollowFreeCores())
        rows = [each._asdict() for each in generate(checkpoint, build, texts, max_tokens, clock)]
    columns = [
        Column("prompt", "prompt", repr, left=True),
        Column("text", "text", repr, left=True),
        Column("ttft_s", "TTFT ms", number(3, 1e3)),
        Column("tpot_s", "TPOT ms", number(3, 1e3)),
    ]
    emit(Result({"generated": rows}, [View(f"{engine.checkpoint} on {engine.device}", columns, rows)]), form)
