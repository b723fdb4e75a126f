"""What users of other tools type, and people who never saw one: which of our options they mean."""

SAME = {  # ours, and options of other tools that take the same value
    "--model": "-m --model-id --model-name --model-path",
    "--hardware": "--gpu --gpus --gpu-type --gpu-name --device --devices --accelerator",
    "--engine": "--backend --framework --runtime",
    "--tp": "--tensor-parallel --tp-size --num-gpus --gpu-count",
    "--pp": "--pipeline-parallel --pp-size",
    "--dp": "--data-parallel --dp-size",
    "--ep": "--ep-size --expert-parallel-size",
    "--weight-dtype": "--dtype --quantization -q --quant --precision --quantize --weights-dtype",
    "--cache-dtype": "-ctk --cache-type-k --kv-dtype --kv-cache-type --cache-type",
    "--max-model-len": "--max-seq-length --max-context --max-context-len --n-ctx --context-size --context-window",
    "--gpu-layers": "--n-gpu-layers --num-gpu --num-gpu-layers",
    "--max-num-seqs": "--slots --num-parallel --n-parallel",
    "--request-rate": "--qps --rps --requests-per-second --request-rate-per-second --load",
    "--input-len": "--random-input-len --prompt-len --prompt-length --prompt-tokens --input-tokens --input-length "
    "--n-prompt --random-input --isl-mean --synthetic-input-tokens-mean",
    "--output-len": "--random-output-len --output-tokens --output-length --n-predict --num-predict --n-gen "
    "--random-output --osl-mean --max-tokens --max-new-tokens --synthetic-output-tokens-mean",
    "--num-prompts": "--num-requests --request-count --n-requests --requests",
    "--slo": "--goodput --sla --latency --bounds",
    "--max-concurrency": "--concurrency --num-concurrent --max-concurrent --parallel-requests",
    "--provider": "--cloud --vendor",
    "--usd-per-hour": "--price-per-hour --cost-per-hour --hourly-price --usd-per-gpu-hour",
    "--num-speculative-tokens": "--speculative-num-draft-tokens --draft-max",
    "--speculative-model": "--model-draft --draft-model -md --speculative-draft-model-path",
}
FROM_SAME = {other: ours for ours, others in SAME.items() for other in others.split()}
LENGTHS = "Give --workload chat (or code, rag, reasoning, summarize), --trace FILE, or --isl and --osl"
PARALLEL_EXPERTS = "Write --ep N, where N is --tp times --dp"
DRAFTS = (
    "Write its parts, say --speculative-model eagle --num-speculative-tokens 3 --acceptance-rate 0.7; the last is what "
    "your text and draft reach"
)
PEOPLE = (  # users: a person, and how many requests a second one sends, are not the same thing
    "Say what they send: {value} people who each send a request every minute are --request-rate {each_minute}. "
    "infercast simulate --max-concurrency {value} has so many requests under way at all times"
)
BUDGET = "Leave it out: the answer has the dollars a month, the cheapest first"
SENTENCES = {
    **dict.fromkeys(("--users", "--num-users", "--concurrent-users", "--clients", "--max-concurrency"), PEOPLE),
    **dict.fromkeys(("--dataset", "--dataset-name", "--dataset-path"), LENGTHS),
    **dict.fromkeys(("--enable-expert-parallel", "--enable-ep"), PARALLEL_EXPERTS),
    **dict.fromkeys(("--speculative-config", "--speculative-algorithm"), DRAFTS),
    **dict.fromkeys(("--budget", "--max-cost", "--max-price"), BUDGET),
    "--ttft": "Write --slo ttft:500ms",
    "--tpot": "Write --slo tpot:50ms",
    "--itl": "Write --slo tpot:50ms",
    "--json": "Write --format json",
    "--csv": "Write --format csv",
    "--output": "Write --format json > FILE, or --plot FILE, or --report FILE",
    "--verbose": "Write --details",
    "-v": "Write --details",
    "-h": "Write --help",
    "--enforce-eager": "Write --set enforce_eager=true",
}
COMMANDS = {  # words for what another tool's command, or no tool at all, does
    **dict.fromkeys(("serve", "start", "deploy"), "launch"),
    **dict.fromkeys(("bench", "benchmark", "run", "load", "sim"), "simulate"),
    **dict.fromkeys(("price", "prices", "pricing"), "cost"),
    **dict.fromkeys(("recommend", "search", "find", "rent", "choose"), "compare"),
    **dict.fromkeys(("list", "ls", "show", "models", "devices", "gpus", "hardware", "engines"), "profiles"),
    **dict.fromkeys(("speed", "latency", "predict", "llama-bench"), "estimate"),
    **dict.fromkeys(("vram", "mem", "fit", "size"), "memory"),
    **dict.fromkeys(("import",), "import-model"),
}
