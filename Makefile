# Two commands are enough: `make up` (a queue to play with) and `make test` (everything checked). `make help` lists all.
# Nothing needs to be installed but Python >= 3.11, git and make.

VENV ?= .venv
DATA ?= .tidemill-data
OPTIONS ?=
SEEDS ?= 25
SECONDS ?= 60
KILLS ?= 50
STORM ?= 600
NODES ?= 3
BIN := $(VENV)/bin
# Tests that need no more of the world than processors share them out; those with servers, disks and clocks wait most of the time.
WITH_SERVERS := e2e or browser
ON_KUBERNETES := cluster or real_cluster
ON_ALL_CORES := -n auto --dist worksteal -m "not ($(WITH_SERVERS) or $(ON_KUBERNETES))"
# Installed again when pyproject.toml changes, and only then: its hash names the stamps.
HASH := $(shell git hash-object pyproject.toml)
SERVER := $(VENV)/.server-$(HASH)
DEV := $(VENV)/.dev-$(HASH)

# How many seeds of a family the tests run, and a half or a quarter as many of those that cost most.
export SEEDS
check: export SEEDS = 4
# Without these two, pyright prefers the machine's node and asks a hub for news.
export PYRIGHT_PYTHON_GLOBAL_NODE := 0
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help setup up test check unit e2e sim soak fuzz bench lint ruff format-check types pyright contracts hooks tidy \
        format docs crds charts lock images wheel clean kubernetes kubernetes-beside cluster cluster-on cluster-down \
        test-cluster

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' Makefile | expand -t 14

up: $(SERVER) ## install what is missing and run a queue here, until Ctrl-C; as in OPTIONS="--port 7410 --http-port 7411"
	@exec $(BIN)/tidemill up --data $(DATA) $(OPTIONS)

test: kubernetes-beside lint ## install what is missing, then lint and all tests
	@$(BIN)/python .ci/tests.py $(BIN)/pytest "$(WITH_SERVERS)" "$(ON_KUBERNETES)"

check: lint ## before a commit: lint, unit, property, golden, some 50 seeds; crash points and planted bugs are for `make test`
	@$(BIN)/pytest $(ON_ALL_CORES) --ignore tests/sim/test_crash_points.py --ignore tests/sim/test_teeth.py

setup: $(DEV) ## install all that the work needs, and the hooks before a commit
	@$(BIN)/pre-commit install

unit: $(DEV) ## tests that need no world
	@$(BIN)/pytest $(ON_ALL_CORES) tests/unit tests/property tests/golden

e2e: $(DEV) ## tests with real processes, disks and clocks
	@$(BIN)/pytest -m e2e

sim: $(DEV) ## simulated clusters, as many of every family as SEEDS=25 says
	@PYTHONPATH=tests $(BIN)/python -m sim sweep --all --seeds $(SEEDS)

soak: $(DEV) ## many seeds, as in SEEDS=10000; new examples; real queues killed KILLS=50 times, workers, a cluster in turn
	@PYTHONPATH=tests $(BIN)/python -m sim soak --all --seeds $(SEEDS)
	@HYPOTHESIS_PROFILE=soak $(BIN)/pytest -q tests/property
	@KILLS=$(KILLS) $(BIN)/pytest -q -s tests/e2e/test_kill.py
	@WORKER_SECONDS=60 WORKER_RATE=2000 $(BIN)/pytest -q -s tests/e2e/test_worker_kill.py
	@STORM_STRICT=1 STORM_SECONDS=$(STORM) STORM_PAUSE=20 STORM_RATE=5000 $(BIN)/pytest -q -s tests/e2e/test_storm.py
	@STORM_STRICT=1 $(BIN)/pytest -q -s tests/e2e/test_cut.py tests/e2e/test_rebalance.py
	@LAKE_KILLS=20 $(BIN)/pytest -q -s tests/spark/test_lake_storm.py

fuzz: $(DEV) ## bytes without end against the wire, for SECONDS=60
	@PYTHONPATH=tests $(BIN)/python -m property.fuzz_wire --seconds $(SECONDS)

bench: $(DEV) ## side by side with peers
	@$(BIN)/python -m bench

cluster: $(DEV) ## a real Kubernetes on this machine, as root, of NODES=3 nodes that run pods
	@PYTHONPATH=tests $(BIN)/python -m cluster up --nodes $(NODES)

cluster-on: $(DEV) ## boot its NODE=node-0 again after a power cut
	@PYTHONPATH=tests $(BIN)/python -m cluster power-on $(NODE)

cluster-down: $(DEV) ## take it away, or what a crash has left of one
	@PYTHONPATH=tests $(BIN)/python -m cluster down

test-cluster: $(DEV) ## the tests that need real pods, as root
	@TIDEMILL_REAL_CLUSTER=1 TIDEMILL_FAULTS=1 $(BIN)/pytest -m real_cluster

kubernetes: $(DEV) ## what clusters for tests run; about ten minutes, once
	@PYTHONPATH=tests $(BIN)/python -m cluster build

# The same beside what make does next, and no longer than that: tests that need it come last, and wait for it.
kubernetes-beside: $(DEV)
	@PYTHONPATH=tests $(BIN)/python -m cluster build --beside $$PPID

docs: $(DEV) ## links and examples of the documents
	@$(BIN)/pytest tests/test_docs.py

lint: ruff format-check types pyright contracts hooks ## style, types (twice), contracts between rooms

ruff: $(DEV)
	@$(BIN)/ruff check

format-check: $(DEV)
	@$(BIN)/ruff format --check

types: $(DEV)
	@$(BIN)/mypy

pyright: $(DEV)
	@$(BIN)/pyright --pythonpath $(BIN)/python

contracts: $(DEV)
	@$(BIN)/lint-imports --no-logo

hooks: $(DEV)
	@$(BIN)/pre-commit validate-config

tidy: $(DEV) ## the rules of the house
	@$(BIN)/pytest -q tests/test_tidy.py

format: $(DEV) ## put the code in shape
	@$(BIN)/ruff check --fix-only --quiet
	@$(BIN)/ruff format

crds: $(DEV) ## the definitions of the kinds in Kubernetes, and the page of their fields, from the declarations in wire
	@$(BIN)/python -m tidemill_operator.crds crds docs/kinds.md

charts: $(DEV) ## what the charts have from elsewhere: definitions, rules, schemas, dashboards; and docs/metrics.md
	@$(BIN)/python charts/generate.py

lock: $(DEV) ## pin what the image holds; as in OPTIONS=--upgrade
	@$(BIN)/python images/lock.py $(OPTIONS)

images: $(DEV) ## the image of all services, in dist/, as root; as in OPTIONS="--debootstrap --install"
	@$(BIN)/python images/build.py $(OPTIONS)

wheel: $(DEV) ## the package, in dist/
	@$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean: ## forget the environment and what the tools remember; data stay
	@rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

$(SERVER): | $(VENV)/.made
	@echo "installing tidemill with its server into $(VENV), once: a minute or two"
	@$(BIN)/python -m pip install --quiet --editable '.[server]'
	@rm -f $(VENV)/.server-* && touch $@

$(DEV): | $(VENV)/.made
	@echo "installing tidemill and the tools of its tests into $(VENV), once: some minutes"
	@$(BIN)/python -m pip install --quiet --editable '.[server,operator,spark,dev]'
	@rm -f $(VENV)/.server-* $(VENV)/.dev-* && touch $(SERVER) $@

# PYTHON=/path/to/python names one; else the first that is new enough. A shim of pyenv may exist and not run.
$(VENV)/.made:
	@for python in $(PYTHON) $(if $(PYTHON),,python3 python3.13 python3.12 python3.11 python3.14 python); do \
	  if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    $$python .ci/environment.py $(VENV) && touch $@; exit; \
	  fi; \
	done; \
	echo "no Python >= 3.11 was found$(if $(PYTHON), as $(PYTHON)): make PYTHON=/path/to/python3.11" >&2; exit 1
