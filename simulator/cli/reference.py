"""`infercast reference generate`: text in, text out, from the engine that predictions are checked against."""

from typing import Annotated

import numpy as np
from typer import Argument, Option

from simulator.cli.enginerun import EngineOptions, status
from simulator.cli.options import Format, OutputFormat, grouped
from simulator.cli.output import Column, Result, Row, View, emit, number
from simulator.errors import InfercastError
from simulator.reference.clock import WallClock
from simulator.reference.engine import Executor, engine_limits, serve
from simulator.reference.tokenizer import require
from simulator.reference.transformer import Transformer
from simulator.reports.report import summarize
from simulator.workloads.workload import Requests

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
    with status("reference engine"):
        rows = _generated(engine, texts, max_tokens)
    columns = [
        Column("prompt", "prompt", repr, left=True),
        Column("text", "text", repr, left=True),
        Column("ttft_s", "TTFT ms", number(3, 1e3)),
        Column("tpot_s", "TPOT ms", number(3, 1e3)),
    ]
    emit(Result({"generated": rows}, [View(f"{engine.checkpoint} on {engine.device}", columns, rows)]), form)


def _generated(engine: EngineOptions, texts: list[str], max_tokens: int) -> list[Row]:
    checkpoint, build = engine.load()
    tokenizer = require(checkpoint.tokenizer, engine.checkpoint)
    prompts = [tokenizer.encode(text) for text in texts]
    if not all(prompts):
        raise InfercastError("an empty text", "there is nothing to go on from", "Give at least one word")
    executor = Executor(Transformer(checkpoint, build))
    requests = Requests(np.zeros(len(texts)), np.array([*map(len, prompts)]), np.full(len(texts), max_tokens))
    served = serve(executor, engine_limits(executor.transformer, 16, 256), requests, prompts, WallClock())
    latencies = summarize(served.run, steady=False).latencies_s
    return [
        {
            "prompt": text,
            "text": tokenizer.decode(output),
            "ttft_s": float(latencies["ttft"][index]),
            "tpot_s": float(latencies["tpot"][index]),
        }
        for index, (text, output) in enumerate(zip(texts, served.outputs, strict=True))
    ]
