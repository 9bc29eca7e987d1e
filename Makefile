# Two commands: `make train` and `make test`. Each sets up .venv by itself, once.

PYTHON ?= python3
BIN := .venv/bin
comma := ,
# One mark for each set of extras: `.venv/ready` for the usual one.
READY = .venv/ready$(if $(filter-out dev,$(EXTRAS)),-$(subst $(comma),-,$(EXTRAS)))
ARGS ?=
EXTRAS ?= dev

.PHONY: help install train test slow chaos check bench lock clean

help:
	@echo "make install set up .venv, as train, test and check do by themselves"
	@echo "make train   train the demo task on this machine (ARGS='--seed 1' adds flags)"
	@echo "make test    run the tests"
	@echo "make slow    run the tests that take minutes"
	@echo "make chaos   kill a random process every ten seconds for five minutes"
	@echo "make check   lint, formatting and types"
	@echo "make bench   measure speed against the floors of this machine"
	@echo "make lock    resolve requirements.lock again"
	@echo "make clean   remove .venv and caches"

install: $(READY)

train: $(READY)
	@$(BIN)/dreamerv3 --configs demo $(ARGS)

test: $(READY)
	@$(BIN)/python -m pytest -m "not slow" $(ARGS)

slow: $(READY)
	@$(BIN)/python -m pytest -m "slow or golden" $(ARGS)

chaos: $(READY)
	@$(BIN)/python -m pytest -m slow -s tests/e2e/test_chaos.py $(ARGS)

check: $(READY)
	@echo "Checking lint, formatting and types"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

bench: $(READY)
	@for script in bench/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

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
