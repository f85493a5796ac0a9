# make reproduce · make test · make bench · make docs — each sets up .venv first; needs Python >= 3.11, make and a package index.
PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
OLDEST_PYTHON ?= python3.11
OLDEST = .venv-oldest
DIST = .venv-dist
BIN = $(VENV)/bin
# loadfile: the tests of a file share fixtures, data and compiled code, so they run on one worker.
WORKERS = -n auto --dist loadfile
# `test-commands`: the tests of what is beside the package, of tests that must fail, and of new processes and environments.
COMMAND_TESTS = $(addprefix tests/,figures verification benchmarks reporting bounds/test_mutations.py \
  certificates/test_mutations.py test_numba.py test_missing_extras.py)
# `test-oldest` runs the tests of what calls NumPy, SciPy, Numba, array-api-compat, scikit-learn and matplotlib. The rest
# of the package is built on these chapters; `make test-all` covers it with current versions.
OLDEST_TESTS = $(addprefix tests/,_kernels networks mixing problems methods exact data frozen test_backend.py \
  test_philox.py test_results.py test_result_files.py test_plots.py test_packaging.py)
# Known to fail there: sparse features with SciPy 1.11, and steps of type np.uint64 above 2^53 with NumPy 1.26.
OLDEST_KNOWN = --deselect tests/problems/test_sparse.py \
  --deselect tests/networks/test_every_kind.py::test_integers_of_numpy_are_integers
# `test-cupy`: the real CuPy without a GPU, in a virtual environment of its own (tests/cupy_on_cpu).
RIG = .cupy-rig
RIG_TESTS = HGP_REF_TEST_CUPY=1 $(RIG)/bin/python -m pytest -q -m "cupy and not slow" $(WORKERS)
# Few files of unequal length: their tests are shared out singly.
RIG_SMALL = --dist load $(addprefix tests/,test_devices.py test_check.py test_every_backend.py test_every_function.py)
RIG_KERNELS = --dist load $(addprefix tests/,_kernels/test_cuda.py test_check.py)
# `dist`: what depends on files beside the package. The others are the same files as in `make test`.
DIST_TESTS = $(addprefix tests/,reporting test_packaging.py test_documentation.py test_architecture.py test_readme.py)
HELPERS = tests/support/libraries.py tests/support/examples.py tests/support/user_problems.py
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export MPLBACKEND ?= Agg
# Tests start many processes: each would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help reproduce test test-commands test-slow test-all test-cupy test-oldest libraries bench coverage dist docs docs-test lint clean
help:
	@echo "make reproduce  verify the theorems, draw the figures, compare with the paper"
	@echo "make test       the tests on NumPy and array-api-strict (about 10,000 tests)"
	@echo "make test-commands  the tests of figures, verification, benchmarks and of the tests themselves"
	@echo "make test-cupy  the tests of CuPy, which a rig runs on the CPU (needs g++)"
	@echo "make test-slow  the tests that are left out for their length"
	@echo "make test-all   all tests, the long ones too, also on PyTorch and JAX"
	@echo "make test-oldest  core tests on the oldest Python and libraries that pyproject.toml declares"
	@echo "make coverage   the tests with a report of the lines that none of them runs"
	@echo "make bench      benchmarks against peers"
	@echo "make docs       the documentation: docs/_build/html/index.html"
	@echo "make docs-test  check its pages in a browser (Chromium)"
	@echo "make dist       the source distribution and the wheel, checked, installed and tried"
	@echo "make lint       ruff, mypy and codespell"

# Experiments run in one process per core. Statements, figures, durations and where to look are summarised at the end.
reproduce: $(VENV)/.ready-test
	$(BIN)/python -m reporting --run

test: $(VENV)/.ready-test
	$(BIN)/python -m pytest $(WORKERS) -m "not slow" $(addprefix --ignore=,$(COMMAND_TESTS))

test-commands: $(VENV)/.ready-test
	$(BIN)/python -m pytest $(WORKERS) -m "not slow" $(COMMAND_TESTS)

test-slow: $(VENV)/.ready-all
	HGP_REF_NEEDS_MPI=1 $(BIN)/python -m pytest $(WORKERS) -m slow

test-all: $(VENV)/.ready-all
	HGP_REF_NEEDS_MPI=1 $(BIN)/python -m pytest $(WORKERS)

# All tests of CuPy once, with device memory that host code cannot read. Then some of them with other orders of threads,
# one call per thread and pages without access after every array, fused multiply-add, and two devices without access to each other, of which either is current.
test-cupy: $(RIG)/.ready
	$(RIG_TESTS) tests
	RIG_STRICT=0 RIG_ORDER=reverse $(RIG_TESTS) $(RIG_KERNELS)
	RIG_GUARD=1 RIG_FAITHFUL=1 $(RIG_TESTS) $(RIG_KERNELS)
	RIG_STRICT=0 RIG_FMA=1 $(RIG_TESTS) $(RIG_KERNELS)
	RIG_STRICT=0 RIG_DEVICES=2 RIG_PEER=0 $(RIG_TESTS) $(RIG_SMALL)
	RIG_STRICT=0 RIG_DEVICES=2 RIG_PEER=0 HGP_REF_TEST_DEVICE=1 $(RIG_TESTS) $(RIG_SMALL)

# Its own cache of compiled code: Numba keeps one version's at a time.
test-oldest: $(OLDEST)/.ready
	NUMBA_CACHE_DIR=$(CURDIR)/$(OLDEST)/numba $(OLDEST)/bin/python -m pytest $(WORKERS) -m "not slow" $(OLDEST_KNOWN) $(OLDEST_TESTS)

# Compiled loops count as not run: Numba does not report its lines.
coverage: $(VENV)/.ready-all
	$(BIN)/python -m pytest $(WORKERS) -m "not slow" --cov --cov-report=term --cov-report=html

# The wheel is installed in an environment of its own and tried outside the repository; tests run from the unpacked
# source distribution, which has every file of the repository.
dist: $(VENV)/.ready-all
	rm -rf dist build $(DIST)
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv $(DIST)
	$(DIST)/bin/python -m pip install --quiet --disable-pip-version-check dist/*-py3-none-any.whl
	cd $(DIST) && bin/python -m hgp_ref check && bin/python -m hgp_ref info
	mkdir $(DIST)/source && tar xzf dist/*.tar.gz -C $(DIST)/source --strip-components=1
	@if git rev-parse HEAD >/dev/null 2>&1; then git ls-files | while read -r file; do \
	  test -e "$(DIST)/source/$$file" || { echo "the source distribution has no $$file"; exit 1; }; done; fi
	cd $(DIST)/source && $(CURDIR)/$(BIN)/python -m verification lemma2 --quick --jobs 1 >verification.txt
	cd $(DIST)/source && $(CURDIR)/$(BIN)/python -m figures fig1a --quick
	cd $(DIST)/source && $(CURDIR)/$(BIN)/python -m pytest -q -p no:cacheprovider $(WORKERS) -m "not slow" $(DIST_TESTS)

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
libraries: $(VENV)/.ready-all $(VENV)/.ready-docs

clean:
	rm -rf $(VENV) $(OLDEST) $(DIST) $(RIG) build dist docs/_build docs/generated results htmlcov .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.ready-test: pyproject.toml setup.py $(BIN)/python
	$(INSTALL) --editable ".[test]"
	@touch $@

$(VENV)/.ready-all: pyproject.toml setup.py $(VENV)/.ready-test
	$(INSTALL) "$(TORCH)"
	$(INSTALL) --editable ".[dev,torch,jax]"
	@touch $@

$(VENV)/.ready-docs: pyproject.toml setup.py $(VENV)/.ready-test
	$(INSTALL) --editable ".[docs]"
	@touch $@

$(RIG)/.ready: pyproject.toml setup.py $(wildcard tests/cupy_on_cpu/* tests/cupy_on_cpu/src/* tests/cupy_on_cpu/src/abi/*)
	PYTHON=$(PYTHON) tests/cupy_on_cpu/setup $(RIG) --editable ".[test]"
	@touch $@

$(OLDEST)/.ready: pyproject.toml setup.py tests/oldest.txt
	test -x $(OLDEST)/bin/python || $(OLDEST_PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check --constraint tests/oldest.txt --editable ".[test]"
	@touch $@
