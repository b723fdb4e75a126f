"""Two examples for each command, which its --help prints and the tests run."""

EXAMPLES = {
    "estimate": (
        "infercast estimate --model llama-3.1-8b --hardware h100-sxm --batch 1,8,64",
        "infercast estimate --model qwen3-32b --hardware h100-sxm --tp 2 --isl 2048 \\\n  --osl 256 --explain",
    ),
    "memory": (
        "infercast memory --model llama-3.1-70b --hardware h100-sxm --tp 4",
        "infercast memory --model qwen3-32b --hardware l40s,h100-sxm \\\n  --weight-dtype fp8 --context 32768",
    ),
    "simulate": (
        "infercast simulate --model llama-3.1-8b --hardware l40s --workload chat \\\n"
        "  --rate 2 --slo ttft:1s,tpot:50ms",
        "infercast simulate --model llama-3.1-8b --hardware h100-sxm --isl 1024 \\\n"
        "  --osl 128 --max-concurrency 1,8,64 --num-prompts 200 --format csv",
    ),
    "fleet": (
        "infercast fleet --model llama-3.1-8b --hardware l40s --replicas 4 \\\n"
        "  --workload chat --rate 6 --num-prompts 1000 --fail 1@1min:30s",
        "infercast fleet --model llama-3.1-8b --hardware h100-sxm --disaggregate 1:1 \\\n"
        "  --isl 4000 --osl 200 --rate 2 --num-prompts 300 --slo ttft:1s,tpot:50ms",
    ),
    "compare": (
        "infercast compare --model llama-3.1-8b --hardware l40s,h100-sxm \\\n"
        "  --workload chat --rate 4 --slo ttft:1s,tpot:50ms",
        "infercast compare --model qwen3-32b --hardware 'h*' --isl 1024 --osl 256 \\\n"
        "  --rate 2 --num-prompts 500 --slo ttft:2s,tpot:60ms --top 3",
    ),
    "cost": (
        "infercast cost --model llama-3.1-8b --hardware l40s,h100-sxm --workload chat \\\n"
        "  --rate 2 --slo ttft:1s,tpot:50ms",
        "infercast cost --model llama-3.1-8b --hardware l40s --isl 2000 --osl 200 \\\n"
        "  --batch --num-prompts 5000 --deadline 2h",
    ),
    "plan": (
        "infercast plan --model llama-3.1-8b --hardware l40s --workload chat --rate 2 \\\n"
        "  --slo ttft:1s,tpot:60ms --growth 10% --months 12 --num-prompts 1000",
        "infercast plan --model llama-3.1-8b --hardware l40s --workload chat --rate 4 \\\n"
        "  --slo ttft:1s,tpot:60ms --rate-curve sine:0.8 --months 1 --num-prompts 1000",
    ),
    "report": (
        "infercast report --model llama-3.1-8b --hardware l40s,h100-sxm \\\n"
        "  --workload chat --rate 4 --slo ttft:1s,tpot:50ms --num-prompts 1000",
        "infercast report --model qwen3-32b --hardware h100-sxm --tp 2 --isl 1024 \\\n"
        "  --osl 256 --rate 2 --num-prompts 500 --slo ttft:2s,tpot:60ms -o chat.html",
    ),
    "training": (
        "infercast training --model llama-3.1-8b --hardware h100-sxm \\\n  --training-tokens 15e12",
        "infercast training --model llama-3.1-8b --hardware h100-sxm \\\n  --usd-per-hour 2 --requests-per-day 1e6",
    ),
    "claims": (
        "infercast claims 4",
        "infercast claims 23 26 --format json",
    ),
    "tune": (
        "infercast tune --model llama-3.1-8b --hardware l40s --workload chat \\\n"
        "  --slo ttft:1s,tpot:60ms --num-prompts 300 --budget 20",
        "infercast tune --model llama-3.1-8b --hardware l40s --max-num-seqs 64,256 \\\n"
        "  --cache-dtype bf16 --max-concurrency 32 --isl 1024 --osl 128 --budget 20",
    ),
    "launch": (
        "infercast launch --model qwen3-32b --hardware h100-sxm --tp 2",
        "infercast launch --model qwen3-32b --hardware h100-sxm --tp 2 \\\n"
        "  --as kubernetes --replicas 3 --out qwen3.yaml",
    ),
    "validate": (
        "infercast validate results.json --hardware h100-sxm --tp 1",
        "infercast validate measured.csv --commands",
    ),
    "reference": (
        'infercast reference generate "The capital of France is"',
        'infercast reference generate "Two and two" "Hello" --max-tokens 8',
    ),
    "calibrate": (
        "infercast calibrate --out profiles",
        "infercast calibrate --measured results.json --hardware h100-sxm --tp 1 \\\n  --out mine",
    ),
    "check": (
        "infercast check --plot check.png",
        "infercast check --device cuda --dtype bf16 --like h100-sxm --num-prompts 0",
    ),
    "check-log": (
        "infercast check-log LOGS --model smollm2-135m --hardware xeon-8480 \\\n  --dtype bf16",
        "infercast check-log LOGS --model smollm2-135m --hardware xeon-8480 \\\n  --dtype bf16 --format json",
    ),
    "profiles": (
        "infercast profiles models",
        "infercast profiles hardware h100-sxm --all",
    ),
    "doctor": (
        "infercast doctor",
        "infercast doctor --profiles mine --format json",
    ),
    "import-model": (
        "infercast import-model config.json --name my-model --to mine/model_profiles",
        "infercast import-model config.json --name my-model --to mine/model_profiles \\\n  --force",
    ),
}
