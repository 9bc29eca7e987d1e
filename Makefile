# Two commands: `make train` and `make test`. Each sets up .venv by itself, once.

PYTHON ?= python3
BIN := .venv/bin
comma := ,
# One mark for each set of extras: `.venv/ready` for the usual one.
READY = .venv/ready$(if $(filter-out dev,$(EXTRAS)),-$(subst $(comma),-,$(EXTRAS)))
ARGS ?=
EXTRAS ?= dev

.PHONY: help install train unit test slow nightly torture chaos soak check bench lock clean

help:
	@echo "make install set up .venv, as train, test and check do by themselves"
	@echo "make train   train the demo task on this machine (ARGS='--seed 1' adds flags)"
	@echo "make unit    run the tests that neither start a process nor compile"
	@echo "make test    run the tests"
	@echo "make slow    run the tests that take minutes"
	@echo "make nightly run the long fault tests, torture and soak"
	@echo "make torture random faults for 30 minutes against a run that learns"
	@echo "make chaos   the same with kills only, for five minutes"
	@echo "make soak    30 minutes at the replay's capacity: nothing may grow"
	@echo "make check   lint, formatting and types"
	@echo "make bench   measure speed against the floors of this machine; keeps the ratios"
	@echo "make lock    resolve requirements.lock again"
	@echo "make clean   remove .venv and caches"

install: $(READY)

train: $(READY)
	@$(BIN)/dreamerv3 --configs demo $(ARGS)

# Tests that only compute share the cores; those with processes need them alone. What is
# left of ARGS may be of one kind only, so that the other finds no test (5).
PYTEST := $(BIN)/python -m pytest
TOGETHER := -n auto --dist loadfile

unit: $(READY)
	@$(PYTEST) $(TOGETHER) -m "not slow and not process and not compile" $(ARGS)

test: $(READY)
	@$(PYTEST) $(TOGETHER) -m "not slow and not process" $(ARGS) || [ $$? -eq 5 ]
	@$(PYTEST) -m "not slow and process" $(ARGS) || [ $$? -eq 5 ]

slow: $(READY)
	@$(PYTEST) -m "(slow or golden) and not nightly" $(ARGS)

nightly: $(READY)
	@$(PYTEST) -m nightly -s $(ARGS) || [ $$? -eq 5 ]
	@$(MAKE) torture soak

# TORTURE_SECONDS, TORTURE_SEED and TORTURE_FAULTS choose other faults, SOAK_SECONDS
# another duration: CONTRIBUTING.md.
TORTURE := tests/e2e/torture/test_torture.py

torture: export TORTURE_FAULTS ?= kill,stop,partition,disk,crash
torture: export TORTURE_SECONDS ?= 1800
torture: $(READY)
	@$(PYTEST) -s $(TORTURE) $(ARGS)

chaos: export TORTURE_FAULTS ?= kill
chaos: export TORTURE_SECONDS ?= 300
chaos: $(READY)
	@$(PYTEST) -s $(TORTURE) $(ARGS)

soak: export SOAK_SECONDS ?= 1800
soak: $(READY)
	@$(PYTEST) -s tests/e2e/torture/test_soak.py $(ARGS)

check: $(READY)
	@echo "Checking lint, formatting and types"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

# Learning curves, bench/learning.py, take hours and are run by hand.
BENCHES := agent parallel replay rpc scale view

bench: export BENCH_HISTORY := bench/history.jsonl
bench: $(READY)
	@for name in $(BENCHES); do \
	  echo "== bench/$$name.py"; $(BIN)/python bench/$$name.py || exit 1; done
	@$(BIN)/python bench/history.py

# Versions are pinned by requirements.lock, which is a constraint for every extra.
$(READY): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and \
	  "This needs Python 3.11 or newer, but $(PYTHON) is %d.%d. Try: make PYTHON=/path/to/python3.11" % v[:2])'
	@echo "Installing into .venv, once (1.1 GB, a minute or two)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --disable-pip-version-check \
	  --constraint requirements.lock --editable '.[$(EXTRAS)]'
	@touch $(READY)

lock:
	@$(PYTHON) -m venv .venv-lock && .venv-lock/bin/pip install --quiet uv
	@.venv-lock/bin/uv pip compile pyproject.toml --universal --upgrade --all-extras \
	  --python-version 3.11 --no-header --no-annotate --no-emit-index-url \
	  --quiet --output-file requirements.lock
	@rm -r .venv-lock

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
