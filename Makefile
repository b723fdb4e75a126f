# Everything runs in a virtual environment of this checkout; python3 and make are all that is needed.
PYTHON ?= python3
BIN := .venv/bin
# A file's tests stay in one of the processes: they share fixtures.
PYTEST := $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile
# It times this machine, which has to be quiet.
GATE := tests/reference/test_reference_check.py::test_smollm2_is_predicted

.PHONY: demo test lint unit slow docs fuzz bench refit accuracy page check check-vllm clean

demo: .venv/ready ## the main job: what does a million tokens cost, and on which device?
	@mkdir -p out
	$(BIN)/infercast cost --model llama-3.1-8b --hardware l4,l40s,a100-sxm-80,h100-sxm --workload chat --request-rate 2 \
		--slo ttft:500ms,tpot:50ms --plot out/cost.png
	$(BIN)/infercast estimate --model llama-3.1-8b --hardware h100-sxm --batch 1,8,64 --isl 1024 --osl 128 \
		--plot out/roofline.png
	@echo "plots: out/cost.png out/roofline.png"

test: lint unit slow ## what CI runs

# Compiled once, not by each process and each part.
lint unit slow: export PYTHONDONTWRITEBYTECODE :=

lint: .venv/reference
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

unit: .venv/reference
	$(PYTEST) -m "not slow"

slow: .venv/reference ## README commands, tour, notebooks, the wheel, oracles again and again
	$(PYTEST) -m slow --deselect $(GATE)
	$(BIN)/python -m pytest $(GATE)

docs: .venv/reference ## the documentation as a site, out/site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

fuzz: .venv/reference ## ten minutes of changed files and options for each reader and command: finite numbers or a one-line error
	$(BIN)/python -m tools.fuzz --seconds 600

bench: .venv/ready
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/library.py
	$(BIN)/python benchmarks/scale.py

# On a busy machine its threads wait for each other.
refit accuracy page: export OPENBLAS_NUM_THREADS := 1

refit: .venv/ready ## constants from the published measurements, intervals, docs/accuracy.md: docs/refitting.md
	@mkdir -p out
	$(BIN)/python -m tools.fit_efficiency --write --left-out out/left_out.csv
	$(MAKE) page

accuracy: .venv/ready ## intervals and docs/accuracy.md from the constants as they are
	@mkdir -p out
	$(BIN)/python -m tools.fit_efficiency --left-out out/left_out.csv
	$(MAKE) page

page: .venv/ready # what follows from out/left_out.csv
	$(BIN)/python -m tools.fit_intervals out/left_out.csv
	$(BIN)/infercast validate --light --format csv > out/scored.csv
	$(BIN)/python -m tools.write_accuracy out/scored.csv out/left_out.csv

check: .venv/reference ## predictions against the reference engine on this machine, about five minutes
	$(BIN)/infercast check --device cpu --plot out/check.png

check-vllm: .venv/reference ## schedule and times of real vLLM on this CPU, in an environment of its own: docs/reference.md says how to make it
	@test -x vllmvenv/bin/python || { echo "make vllmvenv first: docs/reference.md, Other engines"; exit 2; }
	$(BIN)/python -m simulator.reference.export out/smollm2
	PYTHONPATH=. VLLM_CPU_OMP_THREADS_BIND=1 vllmvenv/bin/python -m simulator.reference.vllm_cpu \
		out/smollm2 out/vllm bfloat16 0.6 100
	$(BIN)/infercast check-log out/vllm --model smollm2-135m --hardware xeon-8480 --dtype bf16

# torch by its exact version first: a range would fetch the newest build, with gigabytes of CUDA.
.venv/reference: .venv/ready
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet --editable '.[dev,docs,reference]' 'transformers>=5'
	@touch $@

.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

clean:
	rm -rf .venv out dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
