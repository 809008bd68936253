# What there is to type. `make` alone lists it. Every target does its own set-up.
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
VENV := .venv
BIN := $(VENV)/bin
# More for the program behind a target: make test ARGS='-k watermark', make demo ARGS='--nodes 5'
ARGS ?=
# Round trips to the servers of make far, milliseconds
FAR ?= 1 10 40 100
# make faults: how long each fault is done, and the round trip, milliseconds
SECONDS ?= 600
DISTANCE ?= 10
# make ha: for how long each cluster is struck
HA_SECONDS ?= 90

# Byte code is written even where the environment says otherwise: the tests start some thousand processes.
export PYTHONDONTWRITEBYTECODE :=

# make upgrade: commits whose nodes run beside today's. The first whose stores are those of today
OLD ?= 32331f6e

.PHONY: help setup servers servers-long servers-ha demo test long test-all far faults ha upgrade check lint types layers snippets collected screenshots bench mutants simulate coverage docs lock release-check clean

help: ## List the targets
	@if [ -t 1 ] && [ -z "$$NO_COLOR" ]; then c=$$(printf '\033[36m') d=$$(printf '\033[2m') r=$$(printf '\033[0m'); fi; \
	printf "%scronsensus%s: each scheduled occurrence is run by exactly one replica\n\n" "$$c" "$$r"; \
	awk -v c="$$c" -v r="$$r" -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %smake %-13s%s %s\n", c, $$1, r, $$2 }' $(MAKEFILE_LIST); \
	printf "\n%sARGS=… is passed on: make test ARGS='-k watermark'%s\n" "$$d" "$$r"

setup: ## Make .venv from the lock (the other targets do it too)
	@scripts/setup

servers:
	@scripts/servers

servers-long:
	@scripts/servers --long

servers-ha:
	@scripts/servers --ha

demo: setup ## Three real processes share a schedule; one is killed; the audit counts
	@$(BIN)/cronsensus demo $(ARGS)

PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal

test: setup servers ## Run the tests of every commit, in parallel (five minutes on two cores)
	@$(PYTEST) -m 'not long' $(ARGS)

long: setup servers-long servers-ha ## Run the tests that a nightly run adds (tests/tiers.py says which, and why)
	@HYPOTHESIS_PROFILE=nightly $(PYTEST) -m 'long or drawn' $(ARGS)

test-all: setup servers-long servers-ha ## Run both
	@$(PYTEST) $(ARGS)

far: setup servers ## Run the tests of servers again, 1, 10, 40 and 100 ms away (long)
	@status=0; for far in $(FAR); do echo "$$far ms away"; \
	CRONSENSUS_TEST_FAR=$$far $(BIN)/python -m pytest -n auto --dist worksteal --timeout 900 \
	tests/far tests/lock tests/once tests/stores/test_postgres.py tests/stores/test_mysql.py tests/stores/test_redis.py \
	tests/faults/test_bad_network.py -k 'postgres or mysql or redis' $(ARGS) || status=1; done; exit $$status

faults: setup servers ## Do each fault to real servers for 10 minutes, 10 ms away (about an hour)
	@CRONSENSUS_TEST_FAR=$(DISTANCE) CRONSENSUS_TEST_FAULT_SECONDS=$(SECONDS) \
	$(BIN)/python -m pytest -n auto --timeout $$(($(SECONDS) + 1200)) -rP \
	tests/faults/test_bad_network.py tests/faults/test_full.py tests/faults/test_nodes_away.py tests/faults/test_server_away.py $(ARGS)

ha: setup servers servers-ha ## Kill, stop and cut off the primary of real clusters (long; HA_SECONDS=600 for ten minutes each)
	@CRONSENSUS_TEST_HA_SECONDS=$(HA_SECONDS) $(BIN)/python -m pytest -p no:xdist -q -rP tests/ha $(ARGS)

upgrade: setup servers ## Nodes of earlier commits and of this one on one store: an upgrade, and a rollback (long)
	@CRONSENSUS_TEST_OLD="$(OLD)" $(BIN)/python -m pytest -n auto --timeout 900 -rP tests/upgrade/side_by_side.py $(ARGS)

check: lint types layers snippets collected ## Lint, types, floors, every snippet of the docs, and that each test can be imported

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy --strict src
	$(BIN)/mypy $(wildcard site/*.py)
	$(BIN)/mypy --scripts-are-modules $(addprefix scripts/,stores mutants durations screenshots release_check snippets) tests $(wildcard bench examples)

layers: setup
	$(BIN)/lint-imports --no-logo

snippets: setup
	$(BIN)/python scripts/snippets

# Also compiles the tests once, beside the other checks: else each process of `make test` does so for itself.
collected: setup
	@found=$$(CI= $(BIN)/python -m pytest --collect-only -qq -m 'not long' 2>&1) || { echo "$$found"; exit 1; }

screenshots: setup servers-long ## Take the pictures of docs/img anew, with the Chromium of this machine
	@$(BIN)/python scripts/screenshots

coverage: setup servers-long servers-ha ## Run the tests and show which lines and branches they reach
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest -n auto --dist worksteal $(ARGS); status=$$?; \
	$(BIN)/coverage combine --quiet && $(BIN)/coverage report; exit $$status

bench: ## Measure; huey runs beside us, in an environment of its own
	@scripts/setup .venv-bench requirements/bench.lock
	@.venv-bench/bin/python bench/run.py $(ARGS)

mutants: setup servers ## Change the safety code in one place at a time: which changes does no test notice?
	@$(BIN)/python scripts/mutants $(ARGS)

simulate: setup ## Replay a simulated cluster: make simulate SEED=42
	@$(BIN)/python -m tests.simulation.cluster $(if $(SEED),--seed $(SEED)) $(ARGS)

docs: ## Build the site of the documentation into build/site; a dead link is an error
	@scripts/setup .venv-docs requirements/docs.lock
	@.venv-docs/bin/python site/build.py $(ARGS)

lock: ## Resolve the dependencies anew into requirements/*.lock
	@scripts/lock

release-check: ## Build the sdist and the wheel, and try them on each Python that is here (some minutes)
	@scripts/setup .venv-release requirements/release.lock
	@.venv-release/bin/python scripts/release_check $(ARGS)

clean: ## Remove everything that the targets made
	rm -rf .venv .venv-bench .venv-docs .venv-lock .venv-release .venv-types build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage .coverage.* htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
