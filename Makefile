# make reproduce · make test · make bench — each sets up .venv first; needs Python >= 3.11, make and a package index.
PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
OLDEST_PYTHON ?= python3.11
OLDEST = .venv-oldest
BIN = $(VENV)/bin
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export MPLBACKEND ?= Agg

.PHONY: help reproduce test test-all test-oldest bench lint clean
help:
	@echo "make reproduce  verify the theorems, draw the figures, compare with the paper"
	@echo "make test       the tests on NumPy, array-api-strict and a double of CuPy (under 4 minutes)"
	@echo "make test-all   all tests, the long ones too, also on PyTorch and JAX"
	@echo "make test-oldest  the tests on the oldest Python and libraries that setup.py declares"
	@echo "make bench      benchmarks against peers"
	@echo "make lint       ruff and mypy"

reproduce: $(VENV)/.ready-test
	$(BIN)/python -m verification
	$(BIN)/python -m figures all --variant both
	@echo "report: results/verification/verification.html   figures and tables: results/figures"

test: $(VENV)/.ready-test
	$(BIN)/python -m pytest -n auto -m "not slow"

test-all: $(VENV)/.ready-all
	$(BIN)/python -m pytest -n auto

# A cache of compiled code for itself: Numba keeps one version's at a time.
test-oldest: $(OLDEST)/.ready
	NUMBA_CACHE_DIR=$(CURDIR)/$(OLDEST)/numba $(OLDEST)/bin/python -m pytest -n auto -m "not slow"

bench: $(VENV)/.ready-all
	$(BIN)/python -m benchmarks

lint: $(VENV)/.ready-all
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) $(OLDEST) results .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.ready-test: setup.py $(BIN)/python
	$(INSTALL) --editable ".[test]"
	@touch $@

$(VENV)/.ready-all: setup.py $(VENV)/.ready-test
	$(INSTALL) "$(TORCH)"
	$(INSTALL) --editable ".[dev,torch,jax]"
	@touch $@

$(OLDEST)/.ready: setup.py tests/oldest.txt
	test -x $(OLDEST)/bin/python || $(OLDEST_PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check --constraint tests/oldest.txt --editable ".[test]"
	@touch $@
