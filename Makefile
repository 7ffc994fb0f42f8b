# Everything a newcomer needs; each target sets up what it uses. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests start hundreds of processes; they share compiled modules.
unexport PYTHONDONTWRITEBYTECODE
# Threads of OpenBLAS cost more than they save here; the command line sets the same.
export OPENBLAS_NUM_THREADS := 1
# One more worker than cores, because tests also wait; each takes twelve seconds to collect the tests.
WORKERS := $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) + 1 )))

# Collecting all tests takes as long as some of these.
ENGINE_TESTS := tests/index tests/documents

# Repeats the tests that failed; those that pass now are flaky and are listed.
REPEAT := --last-failed --last-failed-no-failures none -rA

.DEFAULT_GOAL := help
.PHONY: help serve test style types tests test-failed clients engines api browser screenshots page-types drill soak local-llm audit sbom check bench bench-small bench-services bench-scale bench-peers bench-mirror docs clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.base: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.base
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

serve: $(VENV)/.base ## Run the server on http://127.0.0.1:8100
	$(BIN)/recollect serve

test: style ## Check style, then check types while the tests run
	$(MAKE) --no-print-directory --jobs 2 types tests

style: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

tests: $(VENV)/.dev
	$(BIN)/pytest -n $(WORKERS) --dist worksteal || $(MAKE) --no-print-directory test-failed

test-failed: $(VENV)/.dev ## Repeat the tests that failed, alone; those that pass now are flaky
	@echo 'Repeating failed tests alone. Each that passes now is flaky and must be fixed:'
	$(BIN)/pytest $(REPEAT)

build/clients/.installed: scripts/get_clients.py scripts/node.py tests/clients/requirements.txt tests/clients/frameworks.txt tests/clients/package.json tests/clients/agents.json
	$(PYTHON) -m scripts.get_clients
	touch $@

clients: $(VENV)/.dev build/clients/.installed ## Install real clients and test the server with each of them
	$(BIN)/pytest -m clients -s -rs tests/clients || $(BIN)/pytest -m clients -s -rs tests/clients $(REPEAT)

engines: $(VENV)/.dev ## Run the index conformance tests on real servers of Milvus and Chroma
	$(BIN)/pytest -m engines $(ENGINE_TESTS) || $(BIN)/pytest -m engines $(ENGINE_TESTS) $(REPEAT)

api: $(VENV)/.dev ## Test the API against its OpenAPI document (about 15 minutes)
	$(BIN)/pytest -m api -s --timeout 3600

$(VENV)/.browser: tests/http/page/requirements.txt $(VENV)/.dev
	$(BIN)/pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

browser: $(VENV)/.browser ## Test the pages in a real browser; says so if there is none
	@if $(BIN)/python -m scripts.get_browser; then \
		$(BIN)/pytest -m browser tests/http/page || $(BIN)/pytest -m browser tests/http/page $(REPEAT); fi

screenshots: $(VENV)/.browser ## Write pictures of every view into build/screenshots, and those of the documentation
	@if $(BIN)/python -m scripts.get_browser; then $(BIN)/python -m scripts.screenshots; fi

page-types: ## Check the types in the web page's scripts; says so if TypeScript cannot be installed
	$(PYTHON) -m scripts.check_page_types

drill: $(VENV)/.dev ## Run the long fault drills: kills, power cuts, full disks
	$(BIN)/pytest -m drill -s --timeout 3600

soak: $(VENV)/.dev ## Run mixed traffic and faults for an hour, and check for losses, leaks and growth
	$(BIN)/pytest -m drill -s tests/drills/test_soak.py --soak-minutes 60

local-llm: $(VENV)/.dev ## Test with a real small model, which is downloaded once (90 MB)
	$(BIN)/pytest -m local_llm tests/models/test_local_llm.py tests/agent/test_local_llm.py

audit: $(VENV)/.dev ## Look for known vulnerabilities of the dependencies; says so if no service can be reached
	$(BIN)/python -m scripts.audit

sbom: $(VENV)/.dev ## Write what a release installs into dist/recollect.cdx.json (CycloneDX)
	env -u PYTHONPATH $(BIN)/python -m scripts.sbom dist/recollect.cdx.json

check: style types page-types ## Check style and types only

bench: $(VENV)/.dev ## Measure search, writes, memory, the proxy, hooks and start-up
	$(BIN)/python -m benchmarks.run
	$(BIN)/python -m benchmarks.proxy
	$(BIN)/python -m benchmarks.hostile
	$(BIN)/python -m benchmarks.hooks
	$(BIN)/python -m benchmarks.start

bench-small: $(VENV)/.dev ## Run every benchmark on little data, to see that it works
	$(BIN)/python -m benchmarks.small

bench-services: $(VENV)/.dev ## Load the REST API for a minute, without Redis and with it
	$(BIN)/python -m benchmarks.services

bench-scale: $(VENV)/.dev ## Measure a million memories on SQLite, pgvector and Milvus (about an hour)
	$(BIN)/python -m benchmarks.scale

bench-peers: $(VENV)/.dev ## Install and measure mem0, agent-cli, LangGraph, Chroma and LiteLLM next to ours (15 minutes)
	$(BIN)/python -m benchmarks.peers

bench-mirror: $(VENV)/.dev ## Measure a mirror of 100,000 files: start, sync, one write, memory
	$(BIN)/python -m benchmarks.mirror

docs: $(VENV)/.dev ## Build the documentation into build/site; fails on broken links
	$(BIN)/python -m scripts.print_docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) build/clients build/peers build/page-types build/screenshots .mypy_cache .pytest_cache .ruff_cache .hypothesis
