"""How long `infercast compare` takes over the whole library: candidates, what bounds cut, what is simulated, seconds.

python benchmarks/library.py        a line per question
"""

import time
from dataclasses import replace

from simulator.cost.light_bounds import Demand
from simulator.cost.search import Search, priced_target
from simulator.executors.executor import cores
from simulator.executors.threads import Threads
from simulator.hardware.prices import offers
from simulator.questions.compare_question import CompareQuestion
from simulator.questions.workload_question import WorkloadQuestion
from simulator.reports.slo import parse_slo

AIM_S, REQUESTS = 10.0, 4_000
QUESTIONS = (
    ("llama-3.1-8b", "auto", "2", "ttft:500ms,tpot:50ms"),
    ("llama-3.1-70b", "auto", "20", "ttft:1s,tpot:50ms"),
    ("deepseek-v3", "auto", "10", "ttft:3s,tpot:60ms"),
    ("llama-3.1-8b", "all", "50", "ttft:500ms,tpot:50ms"),
    ("gpt-oss-120b", "all", "50", "ttft:3s,tpot:60ms"),
)


def line(model: str, engine: str, rate: str, slo: str) -> str:
    """Search the library once; the seconds are those of the clock on the wall, without imports."""
    begun_s, used_s = time.perf_counter(), time.process_time()
    [(asked_per_s, load)] = WorkloadQuestion(workload="chat", request_rate=rate).workloads()
    load = replace(load, request_count=REQUESTS)
    options = CompareQuestion(model, engine=engine).options(Demand(load.requests(), parse_slo(slo)))
    target = priced_target(asked_per_s or 0.0, load, parse_slo(slo), lambda hardware, _devices: offers(hardware.id))
    search = Search(target, options.candidates, executor=Threads(cores()))
    search.run()
    every = len(options.candidates) + sum(options.cut.values())
    took_s = time.perf_counter() - begun_s
    counted = f"{every:,} candidates, {sum(options.cut.values()):,} cut by data sheet, {search.simulated:,} simulations"
    used = f"{time.process_time() - used_s:.1f} s of a core"
    return f"{model} at {rate}/s, --engine {engine}: {counted}, {took_s:.1f} s ({used}), aim {AIM_S:g} s"


if __name__ == "__main__":
    line(*QUESTIONS[0])  # loads the machine code
    for question in QUESTIONS:
        print(line(*question))
