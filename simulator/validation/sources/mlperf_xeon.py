"""What Intel's harness of MLPerf v5.1 sets for Llama-3.1-8B on Xeons.

Harness: closed/Intel/code/llama3_1-8b/pytorch-cpu of a copy of v5.1 (ntuhpc/inference_results_v5.1; launch_servers.sh,
run_offline.sh, SUT_sglang.py; read 2026-11-23). Every submitter on Xeons runs Intel's container.
"""

from simulator.validation.sources.mlperf import Mlperf
from simulator.validation.sources.mlperf_entries import Entry

# 64 requests (MAX_CONCURRENT_REQUESTS), chunks of 8,192 tokens (CHUNKED_PREFILL_SIZE); "PyTorch" is SGLang
SERVER = Entry(1, 1, 64, 8192, ("sglang", ""))
# A server lies in one NUMA node. Guess: one server in each, and a node for each compute die of a socket (sub-NUMA
# clusters on): CORES_PER_INST and TOTAL_INSTANCES are set in configure_workload.sh, which the copy lacks
NODES = {"xeon-6787p": ("xeon-6787p-numa", 2), "xeon-6980p": ("xeon-6980p-numa", 3)}


class MlperfOnXeons(Mlperf):
    """An entry to MLPerf Inference on Xeons."""

    entry = SERVER

    @property
    def part(self) -> tuple[str, int] | None:
        """The NUMA node that a server lies in, and how many a socket has."""
        return NODES.get(self.hardware.id)
