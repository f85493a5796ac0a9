# make reproduce · make test · make bench · make docs — each sets up .venv first; needs Python >= 3.11, make and a package index.
PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
OLDEST_PYTHON ?= python3.11
OLDEST = .venv-oldest
BIN = $(VENV)/bin
# loadgroup: tests marked with one group share their fixtures, so they run on one worker.
WORKERS = -n auto --dist loadgroup
# `test-oldest` runs the tests of what calls NumPy, SciPy, Numba, array-api-compat, scikit-learn and matplotlib. The rest
# of the package is built on these chapters; `make test-all` covers it with current versions.
OLDEST_TESTS = $(addprefix tests/,_kernels networks mixing problems methods exact data frozen test_backend.py \
  test_philox.py test_results.py test_result_files.py test_plots.py test_packaging.py)
HELPERS = tests/support/libraries.py tests/support/examples.py tests/support/user_problems.py
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export MPLBACKEND ?= Agg

.PHONY: help reproduce test test-slow test-all test-oldest libraries bench coverage docs docs-test lint clean
help:
	@echo "make reproduce  verify the theorems, draw the figures, compare with the paper"
	@echo "make test       the tests on NumPy, array-api-strict and a double of CuPy (about 6 minutes on two cores)"
	@echo "make test-slow  the tests that make test leaves out for their length"
	@echo "make test-all   all tests, the long ones too, also on PyTorch and JAX"
	@echo "make test-oldest  core tests on the oldest Python and libraries that setup.py declares"
	@echo "make coverage   the tests with a report of the lines that none of them runs"
	@echo "make bench      benchmarks against peers"
	@echo "make docs       the documentation: docs/_build/html/index.html"
	@echo "make docs-test  check its pages in a browser (Chromium)"
	@echo "make lint       ruff, mypy and codespell"

# The figures are drawn beside the verification; their output follows at the end.
reproduce: $(VENV)/.ready-test
	@mkdir -p results
	@echo "python -m verification, and beside it python -m figures all --variant both > results/figures.log"
	@$(BIN)/python -m figures all --variant both > results/figures.log 2>&1 & figures=$$!; \
	$(BIN)/python -m verification; verified=$$?; echo "waiting for the figures: results/figures.log"; \
	wait $$figures; drawn=$$?; cat results/figures.log; test $$verified = 0 -a $$drawn = 0
	$(BIN)/python -m reporting

test: $(VENV)/.ready-test
	$(BIN)/python -m pytest $(WORKERS) -m "not slow"

test-slow: $(VENV)/.ready-all
	HGP_REF_NEEDS_MPI=1 $(BIN)/python -m pytest $(WORKERS) -m slow

test-all: $(VENV)/.ready-all
	HGP_REF_NEEDS_MPI=1 $(BIN)/python -m pytest $(WORKERS)

# Its own cache of compiled code: Numba keeps one version's at a time. The double of CuPy needs no second run.
test-oldest: $(OLDEST)/.ready
	NUMBA_CACHE_DIR=$(CURDIR)/$(OLDEST)/numba $(OLDEST)/bin/python -m pytest $(WORKERS) -m "not slow" -k "not cupy" $(OLDEST_TESTS)

# Compiled loops count as not run: Numba does not report its lines.
coverage: $(VENV)/.ready-all
	$(BIN)/python -m pytest $(WORKERS) -m "not slow" --cov --cov-report=term --cov-report=html

bench: $(VENV)/.ready-all
	$(BIN)/python -m benchmarks

# Strict: a warning, an example that fails or an unknown name is an error.
docs: $(VENV)/.ready-docs
	$(BIN)/python -m sphinx -W --keep-going -q -d docs/_build/doctrees -b html docs docs/_build/html
	@echo "site: docs/_build/html/index.html"

docs-test: docs
	$(BIN)/python -m pytest -q -rs docs/browser

lint: $(VENV)/.ready-all
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --allow-untyped-defs --allow-incomplete-defs --allow-untyped-calls --allow-any-generics \
	  --allow-untyped-decorators --follow-imports=silent $(HELPERS)
	$(BIN)/codespell

# PyTorch, JAX, MPI and the tools, beside what `make test` needs. Where they are installed, tests use them.
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
