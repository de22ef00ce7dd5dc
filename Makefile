# Everything a contributor needs. `make help` lists the targets.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Tests that start many processes of their own, judge times or count over all races: one at a time.
ALONE := tests/acceptance tests/browser tests/chaos tests/races

.DEFAULT_GOAL := help
.PHONY: help setup demo check test test-deep chaos bench format docs clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-9s %s\n", $$1, $$2}'

setup: $(READY) ## Make the virtual environment and install everything into it

$(READY): pyproject.toml handlers/pyproject.toml constraints.txt scripts/setup.sh
	PYTHON=$(PYTHON) bash scripts/setup.sh $(VENV)
	@touch $@

demo: setup ## Watch two workers, one of them killed, finish a few hundred processes; KEEP=1 goes on with the dashboard
	$(BIN)/python demo/run.py $(if $(KEEP),--keep)

check: setup ## Format, lint, types, import contracts, deployment files, docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/check_deploy.py
	$(BIN)/python scripts/docs.py --check

test: setup ## All tests, with real worker processes and a real replica set
	$(BIN)/pytest -m "not deep" -n auto --dist loadfile $(addprefix --ignore=,$(ALONE))
	$(BIN)/pytest -m "not deep" $(ALONE)

test-deep: setup ## The properties and races by the thousand (about half an hour)
	KIKWIFLOW_TEST_DEEP=1 KIKWIFLOW_TEST_RACES=1000 $(BIN)/pytest -m deep --timeout 3600

chaos: setup ## Workers and a replica set under load and faults; CHAOS="--seed 7 --minutes 12 ..."
	$(BIN)/python -m tests.chaos $(CHAOS)

bench: setup ## Measure the speed against its floor, and write docs/explanation/performance.md (quarter of an hour)
	$(BIN)/python -m benchmarks

format: setup ## Format the code and sort the imports
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: setup ## Write the generated pages of docs/reference
	$(BIN)/python scripts/docs.py

clean: ## Remove what the targets made
	rm -rf $(VENV) .demo .benchmarks .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
