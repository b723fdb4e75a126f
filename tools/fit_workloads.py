"""Fit the presets of simulator/workloads to published traces: `python -m tools.fit_workloads FOLDER`.

Lengths become tables of quantiles, joined by straight lines: knots go where the line leaves the measured curve most,
until the area between the two is a set share of the mean. Outputs get one such table per band of prompts, so that the
correlation survives. Burstiness is the gamma shape, by a method that each preset states. FOLDER holds the traces that
the presets name. Running it again writes the same bytes.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from simulator.arrays import Floats, Ints
from simulator.workloads.arrivals import ClosedLoop
from simulator.workloads.lengths import MAX_TOKENS, Banded, Quantiles
from simulator.workloads.traces import read_trace
from simulator.workloads.workload import KIND, Workload

FITTED = Path(__file__).parents[1] / "simulator" / KIND
CHECKED = "2026-11"
DRAWN = 200_000
CLOCK_S = 1e-4  # the traces are rounded to this; a gap of 0 is taken for half of it
WRAP = 118


@dataclass(frozen=True)
class Fit:
    """What one preset is fitted to, and how finely: bands of prompts, and area left per mean of each side."""

    name: str
    description: str
    notes: str
    source: str
    file: str
    bands: int
    prompt_area: float
    output_area: float
    max_total_tokens: int = MAX_TOKENS


AZURE = "Azure LLM inference trace 2023, {}, github.com/Azure/AzurePublicDataset, CC-BY 4.0; Splitwise, ISCA 2024"
FITS = (
    Fit(
        name="chat",
        description="Conversation with an assistant",
        notes="Outputs have two humps, near 100 and near 420 tokens, so a single log-normal would not do.",
        source=AZURE.format("conversation (19,366 requests, about one hour)"),
        file="azure_llm_2023_conv.csv.gz",
        bands=8,
        prompt_area=0.01,
        output_area=0.015,
    ),
    Fit(
        name="code",
        description="Code completion in an editor, long prompts and very short outputs",
        notes="The trace pauses for up to 217 s; gamma gaps have no such pauses. Replay the trace itself to see them.",
        source=AZURE.format("code (8,819 requests, about one hour)"),
        file="azure_llm_2023_code.csv.gz",
        bands=4,
        prompt_area=0.01,
        output_area=0.015,
    ),
    Fit(
        name="rag",
        description="Answers from long documents",
        notes="None of the traces at hand is labelled retrieval-augmented; this conversation service with long prompts "
        "is the nearest. 37 % of its 512-token prompt blocks repeat an earlier prefix, which is not modelled here.",
        source="Mooncake conversation trace of Kimi (12,031 requests, about one hour), "
        "github.com/kvcache-ai/Mooncake FAST25-release, Apache-2.0; Mooncake, FAST 2025",
        file="mooncake_fast25_conversation.csv.gz",
        bands=8,
        prompt_area=0.01,
        output_area=0.015,
    ),
    Fit(
        name="summarize",
        description="Summaries of scientific articles",
        notes="Prompt and output together stay within the 4,096 tokens that the data set was cut to, so the longest "
        "outputs belong to the shortest prompts.",
        source="arXiv summarisation lengths (Llama-2 tokenizer, first 20,000 of 28,257 pairs), "
        "github.com/microsoft/vidur data/processed_traces, MIT; Vidur, MLSys 2024",
        file="arxiv_summarization_lengths.csv.gz",
        bands=16,
        prompt_area=0.01,
        output_area=0.015,
        max_total_tokens=4096,
    ),
    Fit(
        name="reasoning",
        description="A model that thinks before it answers",
        notes="Outputs this long hold the thinking and the answer. Only the two distributions are published, not the "
        "pairs: prompt and output are drawn independently, which is a guess.",
        source="ServeGen deepseek-r1 of Alibaba Cloud Model Studio (one day; lengths above 64 tokens in 1/8-octave "
        "bins), github.com/alibaba/ServeGen, Apache-2.0; ServeGen, NSDI 2026",
        file="servegen_length_histograms.csv.gz",
        bands=1,
        prompt_area=0.01,
        output_area=0.01,
    ),
)


def main(traces: Path) -> None:
    """Fit and write every preset."""
    for fit in FITS:
        (FITTED / f"{fit.name}.yaml").write_text(preset_yaml(fit, traces), encoding="utf-8")


def preset_yaml(fit: Fit, traces: Path) -> str:
    """Return the text of one preset, with the agreement it reaches."""
    prompts, outputs = lengths(fit, traces)
    by_prompt = np.argsort(prompts, kind="stable")
    bands = [knots(band, fit.output_area * outputs.mean()) for band in np.array_split(outputs[by_prompt], fit.bands)]
    prompt = knots(prompts, fit.prompt_area * prompts.mean())
    banded = Banded(prompt=prompt, output_by_prompt_band=tuple(bands), max_total_tokens=fit.max_total_tokens)
    requests = Workload(ClosedLoop(1), banded, DRAWN).requests()
    agreement = zip(
        statistics(prompts, outputs, paired=fit.bands > 1).items(),
        statistics(requests.prompt_tokens, requests.output_tokens, paired=fit.bands > 1).values(),
        strict=True,
    )
    return "\n".join(
        [
            "# yaml-language-server: $schema=schema.json",
            "# Written by tools/fit_workloads.py: change the fit there, not the numbers here.",
            f"description: {fit.description}",
            *folded("notes", fit.notes),
            "sources:",
            *source("lengths", fit.source, "fitted"),
            *burstiness(fit, traces),
            "lengths:",
            "  source: lengths",
            *([f"  max_total_tokens: {fit.max_total_tokens}"] if fit.max_total_tokens < MAX_TOKENS else []),
            "  prompt:",
            *table(banded.prompt, "    "),
            "  output_by_prompt_band: # bands of equally many prompts, shortest first",
            *(line for band in bands for line in ["    -", *table(band, "      ")]),
            f"fit: # tokens; the preset's side over {DRAWN:,} drawn requests",
            *(f"  {name}: {{trace: {number(seen)}, preset: {number(drawn)}}}" for (name, seen), drawn in agreement),
            "",
        ]
    )


def lengths(fit: Fit, traces: Path) -> tuple[Floats, Floats]:
    """Return the prompts and outputs to fit: pairs, or for a histogram an even sample of each side, sorted."""
    if fit.name == "reasoning":
        bins = pd.read_csv(traces / fit.file).query("workload == 'deepseek-r1'")
        return even_sample(bins[bins["which"] == "input_tokens"]), even_sample(bins[bins["which"] == "output_tokens"])
    pairs = pd.read_csv(traces / fit.file)
    return pairs["input_tokens"].to_numpy(np.float64), pairs["output_tokens"].to_numpy(np.float64)


def even_sample(bins: pd.DataFrame, count: int = 100_000) -> Floats:
    """Return `count` evenly spaced quantiles of a histogram, straight between the middles of its bins."""
    probability = bins["probability"].to_numpy(np.float64)
    middle = (np.cumsum(probability) - probability / 2) / probability.sum()
    level = (np.arange(count) + 0.5) / count
    sample: Floats = np.interp(level, middle, bins["tokens_bin"].to_numpy(np.float64))
    return sample


def knots(values: Floats, area_tokens: float) -> Quantiles:
    """Return the table of quantiles that leaves at most this mean distance to the measured ones."""
    curve, last = np.sort(values), len(values) - 1
    segments = {(0, last): deviation(curve, 0, last)}
    while sum(area for area, _ in segments.values()) > area_tokens:
        worst = max(segments, key=lambda segment: segments[segment][0])
        middle = segments.pop(worst)[1]
        for segment in ((worst[0], middle), (middle, worst[1])):
            segments[segment] = deviation(curve, *segment)
    index = np.array(sorted({end for segment in segments for end in segment}))
    level = np.round(index / last, 4)
    kept = np.append(np.flatnonzero(np.diff(level)), len(level) - 1)  # of levels that round to one, the last
    tokens = np.rint(curve[index[kept]]).astype(int)
    return Quantiles(levels=tuple(level[kept].tolist()), tokens=tuple(tokens.tolist()))


def deviation(curve: Floats, start: int, end: int) -> tuple[float, int]:
    """Return the area between a stretch of the curve and its chord, and where the two are farthest apart."""
    distance = np.abs(curve[start : end + 1] - np.linspace(curve[start], curve[end], end - start + 1))
    return float(distance.sum()) / len(curve), start + int(distance.argmax())


def statistics(prompts: Floats | Ints, outputs: Floats | Ints, *, paired: bool) -> dict[str, float]:
    """Return what the preset is held to."""
    result = {}
    for side, tokens in (("prompt", prompts), ("output", outputs)):
        result[f"{side}_mean_tokens"] = float(np.mean(tokens))
        result |= {f"{side}_p{p}_tokens": float(np.percentile(tokens, p)) for p in (50, 95, 99)}
    if paired:
        result["correlation"] = float(np.corrcoef(prompts, outputs)[0, 1])
    return result


def burstiness(fit: Fit, traces: Path) -> list[str]:
    """Return the YAML of the gamma shape of the gaps, and of its source."""
    if fit.name == "summarize":
        return ["burstiness: {value: 1, guess: the pairs have no arrival times; Poisson is assumed}"]
    if fit.name == "reasoning":
        rates = pd.read_csv(traces / "servegen_10min_rates.csv.gz").query("workload == 'deepseek-r1'")
        shape = float(rates["rate_weighted_client_iat_cv"].median()) ** -2
        how = (
            "ServeGen as above: 1 / CV² with the median over 144 ten-minute windows of the clients' rate-weighted CV "
            "of gaps (1.63); about 22 clients together look more regular than that over short spans, not over long ones"
        )
        return [*source("burstiness", how, "derived"), f"burstiness: {{value: {shape:.2g}, source: burstiness}}"]
    times = read_trace(traces / fit.file).arrival_s
    if fit.name == "rag":
        shape = 1 / dispersion(times)
        how = "mean / variance of requests per tick: the trace's clock ticks every 3 s, so its gaps cannot be seen"
    else:
        gaps = np.diff(times)
        shape, cv = gamma_shape(gaps), gaps.std() / gaps.mean()
        how = f"maximum likelihood on the trace's gaps; their CV is {cv:.2f}, the preset's {shape**-0.5:.2f}"
    return [*source("burstiness", how, "fitted"), f"burstiness: {{value: {shape:.2g}, source: burstiness}}"]


def gamma_shape(gaps_s: Floats) -> float:
    """Return the maximum-likelihood gamma shape, by Minka's closed start (within 1.5 % of the optimum)."""
    seen = np.maximum(gaps_s, CLOCK_S / 2)
    s = np.log(seen.mean()) - np.log(seen).mean()
    return float((3 - s + np.sqrt((s - 3) ** 2 + 24 * s)) / (12 * s))


def dispersion(times_s: Floats) -> float:
    """Return variance / mean of the number of requests per distinct time."""
    _, counts = np.unique(times_s, return_counts=True)
    return float(counts.var() / counts.mean())


def source(key: str, text: str, evidence: str) -> list[str]:
    """Return one entry of `sources`."""
    lines = [*folded("text", text), f"date: {CHECKED}", f"evidence: {evidence}"]
    return [f"  {key}:", *("    " + line for line in lines)]


def number(value: float) -> str:
    """Return a length to a tenth of a token, a correlation to three digits."""
    return f"{value:.3f}" if abs(value) < 1 else f"{value:.1f}"


def table(quantiles: Quantiles, indent: str) -> list[str]:
    """Return a table as two flow lists, wrapped."""
    levels = [f"{level:g}" for level in quantiles.levels]
    return [*flow("levels", levels, indent), *flow("tokens", [str(tokens) for tokens in quantiles.tokens], indent)]


def flow(key: str, items: list[str], indent: str) -> list[str]:
    """Return `key: [a, b, ...]`, wrapped."""
    return wrapped(f"{indent}{key}: [{', '.join(items)}]", indent + "  ")


def folded(key: str, text: str) -> list[str]:
    """Return `key: >-` and the text, wrapped."""
    return [f"{key}: >-", *wrapped("  " + text, "  ")]


def wrapped(text: str, indent: str) -> list[str]:
    """Break a line at its last space before WRAP, as often as needed."""
    lines = []
    while len(text) > WRAP:
        cut = text.rindex(" ", 0, WRAP)
        lines.append(text[:cut])
        text = indent + text[cut + 1 :]
    return [*lines, text]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
