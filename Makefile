# Plain `make` lists the targets. A fresh machine needs Python 3.11 or newer, pip, make and git.
#   PYTHON   the interpreter for a new virtual environment
#   VENV     the folder of that environment; use one per interpreter
#   WORKERS  how many test processes run side by side; each starts its own PostgreSQL
#   ARGS     handed on to pytest, the benchmark or the demo

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 4
ARGS ?=

BIN = $(VENV)/bin
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# More test processes than two cores, for many tests wait; each has its own server. Tests that must not meet are put
# into one process with @pytest.mark.xdist_group, which only the loadgroup distribution honours. A test process that
# dies is not replaced: xdist 3.8 with loadgroup then waits for ever, and a crash is a failed run anyway.
PYTEST_MODULE = -m pytest -n $(WORKERS) --dist loadgroup --max-worker-restart=0
PYTEST = $(BIN)/python $(PYTEST_MODULE)
LINT = $(BIN)/ruff check . && $(BIN)/ruff format --check .
TYPES = $(BIN)/mypy --strict

# Compiled modules are kept: the tests start hundreds of processes, and each would compile the package anew.
export PYTHONDONTWRITEBYTECODE =

CORE = $(VENV)/.leasehold-core
SERVER = $(VENV)/.leasehold-server
DEV = $(VENV)/.leasehold-dev

.DEFAULT_GOAL := help
.PHONY: help demo quick test test-slow lint types check coverage examples bench soak docs release-check clean interpreter

help:
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

demo: $(if $(findstring --dashboard,$(ARGS)),$(SERVER),$(CORE)) ## workers and a few jobs in an embedded database; with ARGS=--dashboard in a browser
	$(BIN)/python -m leasehold demo $(ARGS)

# SQLite waits for the disk at each of many thousand commits. In memory it does not.
IN_MEMORY = $(shell grep -qs ' /dev/shm [^ ]* [^ ]*noexec' /proc/mounts || df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 4000000 { print "/dev/shm" }')
quick test test-slow coverage: export TMPDIR := $(or $(IN_MEMORY),$(TMPDIR),/tmp)

# Nothing waits then, and a process a core will do.
quick: WORKERS = $(shell getconf _NPROCESSORS_ONLN)
quick: $(DEV) ## what every commit is checked with, within a minute: lint, types, and the tests on SQLite alone
	$(LINT)
	$(TYPES) src # those of the tests take as long again in a fresh clone: make types, make check
	$(PYTEST) -q -m "not soak and not slow and not postgres" tests/architecture tests/domain tests/contract tests/client tests/golden $(ARGS)

test: $(DEV) ## every promise on both stores, SQLite and a real PostgreSQL, with real kills; not what takes seconds each
	$(PYTEST) -m "not soak and not slow" $(ARGS)

test-slow: $(DEV) ## browsers, pages, applications, and the long kill and race tests
	$(PYTEST) -m "slow and not soak" $(ARGS)

check: $(DEV) ## lint, formatting, types, generated files and links
	$(BIN)/python -m tools.generate --check
	$(BIN)/python -m tools.check_docs
	$(LINT)
	$(TYPES)

lint: $(DEV) ## lint and formatting alone
	$(LINT)

types: $(DEV) ## types alone: strict in src, relaxed in tests, tools, bench and examples
	$(TYPES)

# Without the tests that take long and reach what others reach: a process that was killed leaves no figures.
# ARGS names some of the tests; their figures are printed and not written.
COVERING = $(addprefix tests/,client contract contrib domain operations remote run runners stores surfaces tasks worker)
coverage: $(DEV) ## which lines and branches the tests reach, on both stores: docs/measured/coverage.md
	$(BIN)/coverage erase
	$(BIN)/coverage run $(PYTEST_MODULE) $(or $(ARGS),$(COVERING))
	$(BIN)/coverage combine --quiet
	$(BIN)/python -m tools.coverage_page $(ARGS)

examples: $(DEV) ## the five applications end to end, with a line about each
	$(BIN)/python -m examples $(ARGS)

bench: $(DEV) ## the benchmarks
	$(BIN)/python -m bench $(ARGS)

soak: $(DEV) ## the long runs that both leave out
	$(BIN)/python -m pytest -m soak $(ARGS)

docs: $(DEV) ## the docs site, in site/
	$(BIN)/python -m tools.site

release-check: $(DEV) ## build sdist and wheel, install the wheel in an empty environment and run a job with it
	$(BIN)/python -m tools.release_check $(ARGS)

clean: ## remove what builds and test runs leave behind; virtual environments stay
	rm -rf build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .coverage.*
	find src tests tools bench examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# What a user gets: the core dependencies only.
$(CORE): pyproject.toml constraints.txt | interpreter
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) -e .
	@touch $(CORE)

# What the dashboard needs besides.
$(SERVER): pyproject.toml constraints.txt | interpreter
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) -e '.[server]'
	@touch $(CORE) $(SERVER)

# What a contributor needs: every extra, the tools and the PostgreSQL servers.
$(DEV): pyproject.toml constraints.txt | interpreter
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) -e '.[all,dev]'
	@touch $(CORE) $(SERVER) $(DEV)

# An existing environment is used as it is, unless an interpreter was asked for and it is another one.
interpreter:
	@if [ -x $(BIN)/python ]; then \
	    if [ "$(origin PYTHON)" != file ] && [ "$$($(BIN)/python -V 2>&1)" != "$$($(PYTHON) -V 2>&1)" ]; then \
	        echo "$(VENV) was made with $$($(BIN)/python -V 2>&1), but PYTHON=$(PYTHON) was asked for." >&2; \
	        echo "Give it a folder of its own, such as VENV=.venv-$(notdir $(PYTHON))." >&2; \
	        exit 1; \
	    fi; \
	elif ! $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "Leasehold needs Python 3.11 or newer, and \"$(PYTHON) -V\" says: $$($(PYTHON) -V 2>&1 | head -n 1)" >&2; \
	    echo "Name another interpreter with PYTHON=, by its command or its path." >&2; \
	    exit 1; \
	fi
