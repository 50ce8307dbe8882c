# Every target creates the environment that it needs. PYTHON=python3.12 chooses its interpreter.
PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
TORCH ?= torch==2.10.0 torchvision==0.25.0
DATASET ?= cifar10

help: ## Show this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(VENV)/.ready ## Create the environment .venv with the tested versions; TORCH="torch torchvision": with the newest torch

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check $(TORCH) -e ".[test]"
	@touch $@

DEMO := outputs/demo
DIGITS := data_dir=$(DEMO)/data results_dir=$(DEMO)/runs weights_dir=$(DEMO)/weights
demo: setup ## Train and evaluate all ten rows on handwritten digits, clean and corrupted: 3 to 13 minutes, no download, no GPU
	$(PY) scripts/corruptions.py digits --data-dir $(DEMO)/data --out $(DEMO)/data/digits_c
	$(PY) train.py -m sweep=demo $(DIGITS)
	$(PY) scripts/tables.py --results $(DEMO)/runs --out $(DEMO)/tables --print --dataset digits --protocol demo
	$(PY) scripts/figures.py --results $(DEMO)/runs --out $(DEMO)/figures
	$(PY) scripts/activations.py --out $(DEMO)/figures
	$(PY) scripts/corruption_sheet.py --dataset digits --data-dir $(DEMO)/data --out $(DEMO)/figures
	$(PY) scripts/claims.py --results $(DEMO)/runs --out $(DEMO)/claims.md
	$(PY) scripts/report.py --results $(DEMO)/runs --out $(DEMO)/report.html

sweep: setup ## Run the cells of one table or figure: make sweep SWEEP=table1 ARGS="seed=0,1,2 protocol=fast"
	@test -n "$(SWEEP)" || { echo "make sweep SWEEP=table1 starts one; there are:" $(basename $(notdir $(wildcard conf/sweep/*.yaml))); exit 2; }
	$(PY) train.py -m sweep=$(SWEEP) $(ARGS)

status: setup ## Count runs done, running, failed and missing, for tables with a result or for SWEEP=table1 ARGS="seed=0,1,2"
	@$(PY) scripts/status.py $(addprefix sweep=,$(SWEEP)) $(ARGS)

chaos: setup ## Test the demo's sweep: kill it, start it twice, with wrong arguments, with every launcher: 30 minutes on 2 cores
	$(PY) scripts/chaos.py $(ARGS)

test: setup ## Check style and run the tests
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	OMP_NUM_THREADS=1 $(PY) -m pytest -n 2 --dist loadfile

data: setup ## Download and verify a dataset: make data DATASET=cifar10 | cifar100 | tinyimagenet
	$(PY) scripts/prepare_data.py $(DATASET)

tables: setup ## Rebuild the paper's Tables 1-3 and 6 from results/runs: Markdown, LaTeX and CSV under results/tables
	$(PY) scripts/tables.py --readme README.md

claims: setup ## Judge the paper's claims on its own numbers and on ours: results/claims.md
	$(PY) scripts/claims.py --readme README.md

figures: setup ## Draw all figures from the results, as PDF and SVG: results/figures
	$(PY) scripts/figures.py

report: setup ## Put all tables, figures and claims on one page, results/report.html; run make figures first
	$(PY) scripts/report.py

corruptions: setup ## Write the 95 corrupted test sets and their sha256: make corruptions DATASET=cifar10
	$(PY) scripts/corruptions.py $(DATASET) --out data/$(DATASET)_c

benchmark: setup ## Compare the suite's speed with plain PyTorch loops: results/benchmarks
	$(PY) scripts/benchmark.py

clean: ## Remove the environment and caches; results, weights and data stay
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache *.egg-info build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help setup demo sweep status chaos test data tables claims figures report corruptions benchmark clean
.DEFAULT_GOAL := help
