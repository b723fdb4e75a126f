"""Text in, text out."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from simulator.errors import InfercastError
from simulator.reference.checkpoint import Checkpoint
from simulator.reference.clock import Clock
from simulator.reference.engine import Executor, engine_limits, serve
from simulator.reference.tokenizer import needed_tokenizer
from simulator.reference.transformer import Build, Transformer
from simulator.reports.report import summarize
from simulator.workloads.workload import Requests

MAX_NUM_SEQS, MAX_NUM_BATCHED_TOKENS = 16, 256


class Generated(NamedTuple):
    """A prompt, the text that follows it, its time to first token and its time per output token after that, in s."""

    prompt: str
    text: str
    ttft_s: float
    tpot_s: float


def generate(
    checkpoint: Checkpoint, build: Build, texts: Sequence[str], max_tokens: int, clock: Clock
) -> list[Generated]:
    """Continue texts by `max_tokens` tokens each, the likeliest one each time, in one batch.

    Raises InfercastError for an empty text, and for a checkpoint without a tokenizer.
    """
    tokenizer = needed_tokenizer(checkpoint.tokenizer, checkpoint.source)
    prompts = [tokenizer.encode(text) for text in texts]
    if not all(prompts):
        raise InfercastError("an empty text", "there is nothing to go on from", "Give at least one word")
    executor = Executor(Transformer(checkpoint, build))
    requests = Requests(np.zeros(len(texts)), np.array([*map(len, prompts)]), np.full(len(texts), max_tokens))
    limits = engine_limits(executor.transformer, MAX_NUM_SEQS, MAX_NUM_BATCHED_TOKENS)
    served = serve(executor, limits, requests, prompts, clock)
    latencies = summarize(served.run, steady=False).latencies_s
    outputs = [tokenizer.decode(output) for output in served.outputs]
    columns = zip(texts, outputs, latencies["ttft"].tolist(), latencies["tpot"].tolist(), strict=True)
    return [Generated(*each) for each in columns]
