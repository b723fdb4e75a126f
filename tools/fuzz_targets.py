"""What `tools.fuzz` tries: command lines, and files that they read, with the shipped files and fixtures as seeds."""

import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FIXTURES = ROOT / "tests" / "fixtures"
SMALL = "--model smollm2-135m --hardware l4 --request-rate 2 --num-prompts 20"
LENGTHS = "--isl 64 --osl 8"


@dataclass(frozen=True)
class Target:
    """A command line. One with `seeds` reads each of them, changed, as `{file}`; one without is itself changed.

    It is answered within `cpu_s` seconds of CPU. `{folder}` is the file's folder, a copy of `folder` if that is given;
    `{name}` is its name without the ending, `{kind}` the name of the folder that the seed lies in.
    """

    command: str
    seeds: Sequence[Path] = ()
    folder: Path | None = None
    cpu_s: float = 5.0

    @property
    def words(self) -> list[str]:
        """The words of the command line after `infercast`."""
        return shlex.split(self.command)

    def prepared(self, folder: Path, seed: Path, text: str) -> list[str]:
        """Write the text as a seed's file into a new folder, and return the command line that reads it."""
        if self.folder:
            shutil.copytree(self.folder, folder)
        inside = folder / ("/".join(seed.parts[-3:]) if "{kind}" in self.command else seed.name)
        inside.parent.mkdir(parents=True, exist_ok=True)
        inside.write_text(text, encoding="utf-8", errors="replace", newline="")
        names = {"file": inside, "folder": folder, "name": seed.stem, "kind": seed.parent.name}
        return [each.format(**names) for each in self.words]


def _bench(*names: str) -> list[Path]:
    return [FIXTURES / "bench" / f"invented_{name}" for name in names]


def _some(pattern: str, most: int = 12) -> list[Path]:
    """Return up to `most` of the files that a pattern finds, spread evenly over them."""
    found = sorted(ROOT.glob(pattern))
    return found[:: -(-len(found) // most)]


STATED = (
    "--hardware l40s --model llama-3.1-8b --engine vllm --engine-version 0.10 --tp 1 --max-concurrency 2 "
    "--input-len 64 --output-len 8"
)
VALIDATE = f"validate {{file}} {STATED} --format csv --jobs 1"
READERS = {
    "hardware": Target(
        f"estimate --model smollm2-135m --hardware {{file}} --batch 8 {LENGTHS}", _some("hardware_profiles/*.yaml")
    ),
    "model": Target(
        f"estimate --model {{file}} --hardware b300-sxm --tp 8 --batch 8 {LENGTHS}", _some("model_profiles/*.yaml")
    ),
    "engine": Target(
        f"estimate --model smollm2-135m --hardware l4 --engine {{file}} --batch 1 {LENGTHS}",
        _some("simulator/engines/*.yaml"),
    ),
    "workload": Target(f"simulate --workload {{file}} {SMALL}", _some("simulator/workloads/*.yaml")),
    "own profiles": Target("profiles {kind} {name} --profiles {folder}", _some("hardware_profiles/*/*.yaml")),
    "trace": Target("simulate --trace {file} --model smollm2-135m --hardware l4", _some("tests/fixtures/fuzz/trace*")),
    "rate curve": Target(
        f"fleet --model smollm2-135m --hardware l4 --request-rate 2 {LENGTHS} --rate-curve {{file}} --duration 10s",
        _some("tests/fixtures/fuzz/rates*"),
    ),
    "measurements": Target(VALIDATE, _some("tests/fixtures/fuzz/measurements*")),
    "vllm results": Target(VALIDATE, _bench("vllm_serve.json", "vllm_serve_appended.json")),
    "vllm batches": Target(
        VALIDATE.replace("--max-concurrency", "--batch").replace("64 --output-len 8", "512 --output-len 128"),
        _bench("vllm_latency.json", "vllm_throughput.json"),
    ),
    "other results": Target(
        VALIDATE, _bench("aiperf.json", "genai_perf.csv", "genai_perf.json", "guidellm.json", "sglang.jsonl")
    ),
    "llama-bench": Target(
        VALIDATE, _bench("llama_bench.csv", "llama_bench.json", "llama_bench.jsonl", "llama_bench.md")
    ),
    "config": Target("import-model {file} --to {folder} --name own --force", _some("tests/fixtures/fuzz/*config.json")),
    "engine log": Target(
        "check-log {folder} --model smollm2-135m --hardware xeon-8480 --dtype bf16",
        _some("tests/fixtures/vllm-cpu-0.32/*.json"),
        folder=FIXTURES / "vllm-cpu-0.32",
    ),
    "calibrate": Target(f"calibrate --measured {{file}} {STATED} --out {{folder}}/out", _bench("vllm_serve.json")),
}
OPTIONS = {
    "estimate": Target(
        "estimate --model smollm2-135m --hardware l4 --batch 1,8 --isl 64 --osl 8 --tp 1 --context-len 8 "
        "--max-num-seqs 16 --max-num-batched-tokens 2048 --gpu-memory-utilization 0.9 --set block_size=16 --pp 1"
    ),
    "memory": Target(
        "memory --model smollm2-135m --hardware l4 --context 512 --max-model-len 512 --num-gpu-blocks-override 64 "
        "--cpu-offload-gb 0.1 --kv-offloading-size 1"
    ),
    "simulate": Target(
        f"simulate {SMALL} --isl uniform:8:64 --osl lognormal:8:0.5 --slo ttft:500ms,tpot:50ms --slo-share 0.9 "
        "--burstiness 0.5 --seed 3 --prefix-len 16 --num-prefixes 2 --replicas 2 --interval 0.8"
    ),
    "closed": Target(
        f"simulate --model smollm2-135m --hardware l4 --max-concurrency 4 --num-prompts 8 {LENGTHS} "
        "--num-dataset-entries 4 --warmup-request-count 2 --random-range-ratio 0.1 --max-num-seqs 4"
    ),
    "drafts": Target(
        f"simulate {SMALL} {LENGTHS} --speculative-model ngram --num-speculative-tokens 3 --acceptance-rate 0.7,0.5,0.2"
    ),
    "fleet": Target(
        f"fleet {SMALL} {LENGTHS} --replicas 2 --router least-outstanding --timeout 5s --max-retries 1 "
        "--retry-delay 1s --turns 2 --think-time 1s --fail 1@3s:5s --network 1ms"
    ),
    "autoscale": Target(
        f"fleet {SMALL} {LENGTHS} --autoscale concurrency:4 --min-replicas 1 --cold-start 30s "
        "--sync-period 10s --down-delay 60s --load-rate 2GB/s"
    ),
    "pools": Target(f"fleet {SMALL} {LENGTHS} --disaggregate 1:1 --link-bandwidth 50GB/s"),
    "cost": Target(
        f"cost {SMALL} {LENGTHS} --slo ttft:2s --price on-demand --usd-per-hour 0.8 --instance-devices 1 "
        "--interrupted-per-month 0.1 --availability 0.99"
    ),
    "owned": Target(
        f"cost {SMALL} {LENGTHS} --slo ttft:2s --price owned --purchase-usd 2000 --pue 1.3 --usd-per-kwh 0.1 "
        "--lifetime-years 4 --staff-usd-per-month 100 --colocation 150 --grid-g-per-kwh 300"
    ),
    "training": Target(f"training {SMALL} {LENGTHS} --training-tokens 2e12 --mfu 0.4 --usd-per-hour 2"),
    "plan": Target(
        f"plan {SMALL} {LENGTHS} --slo ttft:2s --growth 10% --months 2 --headroom 20% --spare 1",
        cpu_s=15.0,  # fleets of up to 64 replicas are simulated, each at a dozen rates
    ),
}
TARGETS = READERS | OPTIONS
