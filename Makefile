# make reproduce · make test · make bench · make docs — each sets up .venv first; needs Python >= 3.11, make and a package index.
PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
OLDEST_PYTHON ?= python3.11
OLDEST = .venv-oldest
BIN = $(VENV)/bin
# What tests of a file prepare once, they prepare on one worker: files whose tests are marked with a group stay together.
WORKERS = -n auto --dist loadgroup
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export MPLBACKEND ?= Agg

.PHONY: help reproduce test test-slow test-all test-oldest libraries bench coverage docs docs-test lint clean
help:
	@echo "make reproduce  verify the theorems, draw the figures, compare with the paper"
	@echo "make test       the tests on NumPy, array-api-strict and a double of CuPy (under 4 minutes)"
	@echo "make test-all   all tests, the long ones too, also on PyTorch and JAX"
	@echo "make test-slow  those of them that make test leaves out for their length"
	@echo "make test-oldest  the tests on the oldest Python and libraries that setup.py declares"
	@echo "make coverage   the tests with a report of the lines that none of them runs"
	@echo "make bench      benchmarks against peers"
	@echo "make docs       the documentation: docs/_build/html/index.html"
	@echo "make docs-test  open its pages in a browser (Chromium) and look for faults"
	@echo "make lint       ruff, mypy and codespell"

reproduce: $(VENV)/.ready-test
	$(BIN)/python -m verification
	$(BIN)/python -m figures all --variant both
	$(BIN)/python -m reporting

test: $(VENV)/.ready-test
	$(BIN)/python -m pytest $(WORKERS) -m "not slow"

test-slow: $(VENV)/.ready-all
	HGP_REF_NEEDS_MPI=1 $(BIN)/python -m pytest $(WORKERS) -m slow

test-all: $(VENV)/.ready-all
	HGP_REF_NEEDS_MPI=1 $(BIN)/python -m pytest $(WORKERS)

# A cache of compiled code for itself: Numba keeps one version's at a time.
test-oldest: $(OLDEST)/.ready
	NUMBA_CACHE_DIR=$(CURDIR)/$(OLDEST)/numba $(OLDEST)/bin/python -m pytest $(WORKERS) -m "not slow"

# Compiled loops count as not run: Numba does not report its lines.
coverage: $(VENV)/.ready-all
	$(BIN)/python -m pytest $(WORKERS) -m "not slow" --cov --cov-report=term --cov-report=html

bench: $(VENV)/.ready-all
	$(BIN)/python -m benchmarks

# Strict: a warning, an example that fails or a name that is not there ends it with an error.
docs: $(VENV)/.ready-docs
	$(BIN)/python -m sphinx -W --keep-going -q -d docs/_build/doctrees -b html docs docs/_build/html
	@echo "site: docs/_build/html/index.html"

docs-test: docs
	$(BIN)/python -m pytest -q -rs docs/browser

lint: $(VENV)/.ready-all
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell

# PyTorch, JAX, MPI and the rest beside what `make test` needs: where they are, it tests them as well.
libraries: $(VENV)/.ready-all

clean:
	rm -rf $(VENV) $(OLDEST) docs/_build docs/generated results htmlcov .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.ready-test: setup.py $(BIN)/python
	$(INSTALL) --editable ".[test]"
	@touch $@

$(VENV)/.ready-all: setup.py $(VENV)/.ready-test
	$(INSTALL) "$(TORCH)"
	$(INSTALL) --editable ".[dev,torch,jax]"
	@touch $@

$(VENV)/.ready-docs: setup.py $(VENV)/.ready-test
	$(INSTALL) --editable ".[docs]"
	@touch $@

$(OLDEST)/.ready: setup.py tests/oldest.txt
	test -x $(OLDEST)/bin/python || $(OLDEST_PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check --constraint tests/oldest.txt --editable ".[test]"
	@touch $@
