# Everything sets itself up: only Python 3.11 to 3.13 and make are needed beforehand.
SHELL := /bin/sh
VENV  := .venv
PY    := $(VENV)/bin/python
READY := $(VENV)/.ready
JOBS  ?= 2
OUT   ?= out/demo
# A launcher may exist without a Python behind it, so each candidate is tried, not just looked up.
PYTHON ?= $(shell for p in python3.12 python3.13 python3.11 python3 python; do \
  $$p -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' >/dev/null 2>&1 \
  && { echo $$p; break; }; done)

.PHONY: demo test test-slow lint types bench reference clean setup
.DEFAULT_GOAL := test

setup: $(READY)

$(READY): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "no Python 3.11, 3.12 or 3.13 with venv found; name one: make PYTHON=/path/to/python" >&2; exit 1; }
	$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(PY) -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $@

demo: $(READY)
	$(PY) -m polymodel.cli evaluate tpu_v4i gpt3_6.7B/fused --var N_TOKENS=2048 --out $(OUT) --parquet

test: lint types
	$(PY) -m pytest -n $(JOBS)

test-slow: $(READY)
	POLYMODEL_RANDOM=1 $(PY) -m pytest -n $(JOBS) -m slow

lint: $(READY)
	$(PY) -m ruff check .

types: $(READY)
	$(PY) -m mypy

bench: $(READY)
	$(PY) -m benchmarks.bench $(if $(LONG),--long)

reference: $(READY)
	$(PY) -m tests.reference.check $(if $(CASES),--cases $(CASES))

clean:
	rm -rf $(VENV) build dist out benchmarks/.peers *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
