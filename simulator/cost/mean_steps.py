"""The mean steps of a run: of its decodes alone, and of one of its prompts."""

import numpy as np

from simulator.deployment.batches import attended
from simulator.deployment.deployment import Deployment
from simulator.models.operations import Counts, pairs
from simulator.reports.report import Report


def decode_step(deployment: Deployment, report: Report) -> Counts:
    """Return the counts of a step that decodes `report.mean_step_running` sequences, each with half of its output.

    With speculation a sequence computes its draft tokens too, as in `batches.decode_counts`.
    """
    requests = report.run.requests
    prompts, outputs = (each.astype(np.float64) for each in (requests.prompt_tokens, requests.output_tokens))
    context = float((prompts + outputs / 2).mean())
    local = pairs(outputs, prompts, attended(deployment)) / outputs
    running, drafts = max(1.0, report.mean_step_running), deployment.draft_tokens
    return Counts(
        steps=1.0,
        tokens=running * (1 + drafts),
        logits=running * (1 + drafts),
        decode_reads=running * (context + drafts),
        decode_reads_windowed=running * (float(np.mean(local)) + drafts),
    )


def prompt_step(deployment: Deployment, report: Report) -> Counts:
    """Return the counts of a step that computes a prompt of mean length, or as much of one as a step may hold."""
    mean_tokens = round(float(report.run.requests.prompt_tokens.mean()))
    tokens = max(1, min(mean_tokens, deployment.max_num_batched_tokens))
    return Counts(
        steps=1.0,
        tokens=float(tokens),
        logits=1.0,
        prefill_tokens=float(tokens),
        prefill_pairs=float(pairs(tokens, 0)),
        prefill_pairs_windowed=float(pairs(tokens, 0, attended(deployment))),
    )
