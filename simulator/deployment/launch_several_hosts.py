"""What a launch command needs where a replica takes more than one host: each engine's own words for it."""

import math
from collections.abc import Callable, Mapping

from simulator.deployment.deployment import Deployment
from simulator.errors import NotModelledError

RANK, HEAD = "$NODE_RANK", "$HEAD_IP"  # variables of the shell: the number of a host, and the address of the first
PORT = 5000  # of SGLang's documentation, for the first host


def hosts(deployment: Deployment) -> int:
    """Return how many hosts one replica takes: an engine's process does not reach beyond one, even where a link does.

    >>> from simulator import default_layout, deploy, load_model
    >>> hosts(deploy("deepseek-v3", "h100-sxm", layout=default_layout(load_model("deepseek-v3"), tp=16)))
    2
    """
    return math.ceil(deployment.devices / deployment.hardware.host_devices)


def words_of_hosts(deployment: Deployment) -> tuple[list[str], list[str]]:
    """Return the words before a command and after it that start a replica over its hosts; none for one host.

    Sources, looked up 2026-11-24: vLLM docs.vllm.ai, serving/parallelism_scaling and serving/data_parallel_deployment;
    SGLang docs.sglang.io, multi-node deployment; TensorRT-LLM nvidia.github.io/TensorRT-LLM, commands/trtllm-serve.
    Raises NotModelledError for engines whose words are not known, and ranks that do not divide over the hosts.
    """
    count, engine = hosts(deployment), deployment.engine.engine
    if count == 1:
        return [], []
    given = f"a launch command of {engine} over {count} hosts"
    if engine not in _WORDS:
        raise NotModelledError(given, "its flags are not known here", f"Known: {', '.join(_WORDS)}")
    if deployment.devices % count or (deployment.layout.dp > 1 and deployment.layout.dp % count):
        because = "devices and data-parallel ranks are started as many on each, and do not divide evenly"
        raise NotModelledError(given, because, f"Give multiples of {count}")
    return _WORDS[engine](deployment, count)


def note_of_hosts(deployment: Deployment) -> str:
    """Return a sentence that says where a command over several hosts is to be typed; "" for one host."""
    count, engine = hosts(deployment), deployment.engine.engine
    if count == 1:
        return ""
    if engine == "tensorrt-llm":
        return f"Slurm starts it on {count} hosts."
    first = "HEAD_IP the first's address"
    others = f"{first}, and the others take --headless" if engine == "vllm" else first
    return f"On each of {count} hosts: NODE_RANK is its number from 0, {others}."


def _vllm(deployment: Deployment, count: int) -> tuple[list[str], list[str]]:
    if deployment.layout.dp > 1:
        ranks = deployment.layout.dp // count
        first = ["--data-parallel-start-rank", f"$(({ranks}*NODE_RANK))"]
        return [], ["--data-parallel-size-local", str(ranks), "--data-parallel-address", HEAD, *first]
    return [], ["--nnodes", str(count), "--node-rank", RANK, "--master-addr", HEAD]


def _sglang(_: Deployment, count: int) -> tuple[list[str], list[str]]:
    return [], ["--nnodes", str(count), "--node-rank", RANK, "--dist-init-addr", f"{HEAD}:{PORT}"]


def _tensorrt_llm(deployment: Deployment, count: int) -> tuple[list[str], list[str]]:
    each = str(deployment.devices // count)
    return ["srun", "-N", str(count), "--ntasks-per-node", each, "--mpi=pmix", "trtllm-llmapi-launch"], []


_WORDS: Mapping[str, Callable[[Deployment, int], tuple[list[str], list[str]]]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "tensorrt-llm": _tensorrt_llm,
}
