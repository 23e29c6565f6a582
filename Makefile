# Everything sets itself up: only Python 3.11 to 3.13 and make are needed beforehand.
SHELL := /bin/sh
VENV  := .venv
PY    := $(VENV)/bin/python
READY := $(VENV)/.ready
JOBS  ?= 2
# One more than processors: tests that wait for other processes leave theirs to the others.
WORKERS ?= 3
OUT   ?= out/demo
# A launcher may exist without a Python behind it, so each candidate is tried, not just looked up.
PYTHON ?= $(shell for p in python3.12 python3.13 python3.11 python3 python; do \
  $$p -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' >/dev/null 2>&1 \
  && { echo $$p; break; }; done)

# Kept even where the environment says otherwise: the processes that tests start need not compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-slow lint types docs dist browser editor bench reference clean setup
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

test: $(READY)
	+@$(MAKE) --no-print-directory -j $(JOBS) lint types browser
	$(PY) -m pytest -n $(WORKERS) --dist loadfile

test-slow: $(READY) editor
	POLYMODEL_RANDOM=1 POLYMODEL_LONG=1 POLYMODEL_YAML_SERVER=$(SERVER) $(PY) -m pytest -n $(JOBS) -m "slow or hypothesis"

lint: $(READY)
	$(PY) -m ruff check .

types: $(READY)
	$(PY) -m mypy --num-workers $(JOBS)

docs: $(READY)
	$(PY) -m sphinx -W --keep-going -q -b html -c docs . out/docs
	@echo "open out/docs/index.html"

dist: $(READY)
	$(PY) -m build --no-isolation --outdir dist

# The HTML report is tested in a real browser. Where there is none and the system's packages may be installed
# (a container's root), it is; elsewhere those tests say that they were skipped.
browser:
	@set -e; for b in "$$POLYMODEL_BROWSER" chromium chromium-browser google-chrome; do \
	  if [ -n "$$b" ] && command -v "$$b" >/dev/null 2>&1; then exit 0; fi; done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	  echo "installing chromium, in which the HTML report is tested"; \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium; } \
	  >/dev/null 2>&1 || echo "chromium could not be installed: tests in a browser are skipped" >&2; \
	fi

# What editors ask about YAML, for the slow tests of the schemas; without npm they say that they were skipped.
SERVER := $(CURDIR)/$(VENV)/editor/node_modules/.bin/yaml-language-server
editor: $(READY)
	@test -x $(SERVER) || ! command -v npm >/dev/null 2>&1 \
	|| npm install --silent --no-audit --no-fund --prefix $(VENV)/editor yaml-language-server@1.25.0 >/dev/null 2>&1 \
	|| echo "yaml-language-server could not be installed: tests of editors are skipped" >&2

bench: $(READY)
	$(PY) -m benchmarks.bench $(if $(LONG),--long) $(if $(ONLY),--only $(ONLY))

# CASES=DIR: all cases (else the few that the repository has); DATA=DIR: matrices of public collections that cases
# and documents name, and with both docs/validation.md is compared; PEERS=DIR: files
# that other tools publish.
reference: $(READY)
	$(PY) -m tests.reference.check $(if $(CASES),--cases $(CASES)) $(if $(DATA),--data $(DATA)) $(if $(PEERS),--peers $(PEERS))

clean:
	rm -rf $(VENV) build dist out benchmarks/.peers *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
