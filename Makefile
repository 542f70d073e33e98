# Needs Python 3.10, 3.11 or 3.12 and nothing else: `make demo`, `make test`.
# `make demo PYTHON=python3.12` chooses one.

PYTHON ?= python3
VENV ?= .venv
CONSTRAINTS ?= packaging/constraints.txt
# plain `=`: the shell variable SECONDS must not leak in; `make demo SECONDS=60` still sets it
SECONDS = 20
OUTPUT ?= demo_output
EXTRAS ?= demo,benchmark,test
SPHINX_ARGS ?=
WORKERS ?= 2
PYTEST_ARGS ?=
BENCHMARK_ARGS ?=
CAMPAIGN_ARGS ?=
NOTEBOOKS ?=

ADVICE := name a Python 3.10, 3.11 or 3.12, for example with PYTHON=python3.11
BIN := $(VENV)/bin
CREATED := $(VENV)/.created
INSTALLED := $(VENV)/.installed
DOCS := $(VENV)/.docs
SOURCES = $(wildcard .ci gpflow_decoupled tests benchmarks demo notebooks docs) setup.py

export TF_CPP_MIN_LOG_LEVEL ?= 2
export MPLBACKEND ?= Agg

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help install demo test test-all unit lint format bench bench-full campaign notebooks notebooks-site docs clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 18

$(CREATED):
	@command -v "$(PYTHON)" >/dev/null || { echo "'$(PYTHON)' was not found; $(ADVICE)" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; v = sys.version_info; (3, 10) <= v[:2] <= (3, 12) or sys.exit( \
	  "$(PYTHON) is Python %d.%d.%d; $(ADVICE)" % tuple(v[:3]))'
	"$(PYTHON)" -m venv --clear "$(VENV)"
	@touch $@

# pip compiles on one core, compileall on all of them; what it cannot compile are templates
$(INSTALLED): $(CREATED) pyproject.toml $(CONSTRAINTS)
	$(BIN)/python -m pip install --disable-pip-version-check --no-compile --constraint $(CONSTRAINTS) \
	  --editable ".[$(EXTRAS)]"
	@$(BIN)/python -W ignore -m compileall -qq -j 0 -x '/(tests|substrates)/' "$(VENV)/lib" || true
	@touch $@ $(if $(findstring docs,$(EXTRAS)),$(DOCS))

install: $(INSTALLED) ## create .venv; install the package and what demo, benchmarks and tests need

demo: $(INSTALLED) ## fit a photograph by inducing points and by neighbours; SECONDS=20 a model, pictures in OUTPUT=demo_output
	$(BIN)/python -m demo.photograph --seconds $(SECONDS) --output "$(OUTPUT)"

test: lint unit ## linters, then the short run of the tests, a few minutes on two cores

test-all: lint ## linters, then every test with all of its parameters, notebooks and benchmarks in small too
	@$(MAKE) --no-print-directory unit PYTEST_ARGS="--exhaustive $(PYTEST_ARGS)"

# one TensorFlow thread a worker: tests are small, and tracing, which dominates, is single-threaded
# neighbouring tests share fixtures and graphs, and stay together until a worker has none left
unit: export CUDA_VISIBLE_DEVICES = -1
unit: export TF_NUM_INTRAOP_THREADS ?= 1
unit: export TF_NUM_INTEROP_THREADS ?= 1
unit: export OMP_NUM_THREADS ?= 1
unit: $(INSTALLED) ## the tests without the linters; PYTEST_ARGS='-k layers'
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

.PHONY: coverage forward release-check

coverage: export CUDA_VISIBLE_DEVICES = -1
coverage: export TF_NUM_INTRAOP_THREADS ?= 1
coverage: export OMP_NUM_THREADS ?= 1
# costs a tenth of the other, which coverage takes on Python 3.10 and 3.11
coverage: export COVERAGE_CORE ?= sysmon
coverage: $(INSTALLED) ## the short run of the tests, and the share of lines that it reaches: coverage.txt
	$(BIN)/python -m pip install --disable-pip-version-check --constraint $(CONSTRAINTS) "pytest-cov>=6"
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --cov gpflow_decoupled --cov-report= $(PYTEST_ARGS)
	$(BIN)/python -m coverage report --skip-covered > coverage.txt
	@grep TOTAL coverage.txt

# not the environment of `make install`: pip would not put GPflow beside this NumPy
forward: ## the tests on NumPy 2, with GPflow installed without its pin; PYTHON=python3.13
	"$(PYTHON)" -m venv --clear .venv-forward
	.venv-forward/bin/python -m pip install --disable-pip-version-check --constraint packaging/constraints-forward.txt --requirement packaging/requirements-forward.txt
	.venv-forward/bin/python -m pip install --disable-pip-version-check --no-deps --constraint packaging/constraints-forward.txt gpflow
	.venv-forward/bin/python -m pip install --disable-pip-version-check --no-deps --ignore-requires-python --editable .
	CUDA_VISIBLE_DEVICES=-1 TF_NUM_INTRAOP_THREADS=1 OMP_NUM_THREADS=1 \
	  .venv-forward/bin/python -m pytest -n $(WORKERS) -W default $(PYTEST_ARGS)

lint: $(INSTALLED) ## ruff and mypy
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy

format: $(INSTALLED) ## rewrite the sources in the project's format
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

bench: $(INSTALLED) ## every benchmark in small, a few minutes; opens its report, benchmarks/results/ci.html
	$(BIN)/python -m benchmarks run --suite ci --open $(BENCHMARK_ARGS)

bench-full: $(INSTALLED) ## every benchmark at its own size, for hours; BENCHMARK_ARGS='--data DIR --resume'
	@set -e; for suite in $$($(BIN)/python -c 'from benchmarks.suites.ci import TINY; print(*TINY)'); do \
	  echo "$$suite"; $(BIN)/python -m benchmarks run --suite $$suite $(BENCHMARK_ARGS); done

campaign: $(INSTALLED) ## try the package at random and count what held, under an hour; CAMPAIGN_ARGS='--part kills --case 3'
	$(BIN)/python -m tests.campaign --workers $(WORKERS) $(CAMPAIGN_ARGS)

notebooks: $(INSTALLED) ## run every notebook (they are scripts) from top to bottom
	@set -e; for script in $(sort $(wildcard notebooks/*.py)); do echo "$$script"; $(BIN)/python "$$script"; done

$(DOCS): $(CREATED) pyproject.toml $(CONSTRAINTS)
	$(BIN)/python -m pip install --disable-pip-version-check --constraint $(CONSTRAINTS) --editable ".[docs]"
	@touch $@

notebooks-site: $(DOCS) ## execute what changed in the notebooks for the site; NOTEBOOKS='01_quickstart' for some
	$(BIN)/python docs/_ext/execute.py $(NOTEBOOKS)

docs: $(DOCS) ## build the documentation, warnings as errors: docs/_build/html/index.html
	$(BIN)/python -m sphinx -W --keep-going -b html $(SPHINX_ARGS) docs docs/_build/html

release-check: $(CREATED) ## wheel and sdist, `twine check`, and the quick start of README.md from the wheel, outside of the checkout
	$(BIN)/python .ci/release_check.py --constraint $(CONSTRAINTS)

clean: ## remove the environment, caches and outputs
	rm -rf "$(VENV)" .venv-forward build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .coverage coverage.txt demo_output campaign_output benchmarks/results docs/_build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
