# One command each, on a fresh machine with python3 (3.10 or later), make and a C++20 compiler; no root, no GPU needed.
#
#   make bench   with a GPU: run the experiments and draw their pages in results/; without, in a few minutes: check
#                kernels on the processor, compile a sample for every architecture, redraw a published run in build/
#   make contribute   ten minutes on your GPU, checked and packed into one archive to send
#   make take-in ARCHIVE=...   checks such an archive, puts it into reports/ and draws its pages: what a pull request has
#   make test    the tests: eight minutes on two processors, then six; with FAST=1 those of five rooms, in one
#   make lint types data numbers compile site readme   what else .ci/run checks
#   make audit   known vulnerabilities of what .ci/run installs, from PyPI's advisories (needs the network)
#   make constraints   moves .ci/constraints.txt, the versions that .ci/run installs, to today's releases (needs uv)
#
# Everything is installed into .venv, once. On a machine that has the packages (or no network), VENV= uses the current
# Python as it is:  make test VENV=
#
#   PYTHON=python3.12    interpreter to start from
#   EXPERIMENTS="..."    what `make bench` runs (default: see runners/bench.py)
#   BUDGET=15m           about how long `make bench` runs on a GPU (empty: everything, tuned; hours)
#   MINUTES=10           how long `make contribute` measures
#   FAST=1               what `make test` runs while you work: no program is compiled, no page drawn
#   QUICK=1              a first look in build/quick/: smallest problems, few candidates, short measurements

PYTHON ?= python3
VENV ?= .venv
EXPERIMENTS ?=
BUDGET ?= 15m
QUICK ?=
FAST ?=
MINUTES ?= 10
ARCHIVE ?=

ifeq ($(strip $(VENV)),)
python := $(PYTHON)
base :=
dev :=
bench_flags := --no-install
export PYTHONPATH := $(CURDIR)/suite$(if $(PYTHONPATH),:$(PYTHONPATH))
else
python := $(VENV)/bin/python
base := $(VENV)/.installed
dev := $(VENV)/.installed-dev
bench_flags :=
export PATH := $(abspath $(VENV))/bin:$(PATH)
endif
# Tests start hundreds of interpreters: where nothing keeps bytecode, each compiles the package anew, for a second.
unexport PYTHONDONTWRITEBYTECODE

cxx_sources = $(shell find kernels_cu suite/nnzbench/devices/cpu -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' -o -name '*.h')

fast = $(addprefix suite/tests/,core data results devices/build papers/predict)

.PHONY: help bench contribute take-in test lint types data numbers compile site readme audit constraints format clean

help:
	@awk '!/^#/ { exit } { sub(/^# ?/, ""); print }' Makefile

bench: $(base)
	$(python) runners/bench.py $(bench_flags) $(if $(BUDGET),--budget $(BUDGET)) $(if $(QUICK),--quick) $(EXPERIMENTS)

contribute: $(base)
	$(python) runners/contribute.py $(bench_flags) --minutes $(MINUTES)

take-in: $(base)
	$(python) runners/contribute.py --take-in $(ARCHIVE)

# Tests run beside each other: threads of one that wait for the processor of another take a tenth of the time.
test: export OPENBLAS_NUM_THREADS ?= 1
test: $(dev)
	$(python) -m pytest $(if $(FAST),$(fast)) $$($(python) -c 'from importlib.util import find_spec as f; print("-n auto --dist loadfile --max-worker-restart=0" * bool(f("xdist")))')

lint: $(dev)
	$(python) -m ruff check
	$(python) -m ruff format --check
	lint-imports
	clang-format --dry-run -Werror $(cxx_sources)

types: $(dev)
	$(python) -m mypy

data: $(dev)
	$(python) -m nnzbench validate reports

readme: $(dev)
	$(python) runners/readme.py

numbers: $(dev)
	$(python) runners/recompute.py

compile: $(dev)
	$(python) -m nnzbench compile

site: $(dev)
	NO_MKDOCS_2_WARNING=1 $(python) -m mkdocs build
	@echo "Built, every link checked: build/site/index.html"

# --strict: a package that the advisories do not answer for is a failure, not a pass
audit: $(dev)
	$(python) -m pip_audit --strict --no-deps --disable-pip --progress-spinner off --requirement .ci/constraints.txt

constraints:
	uv pip compile --universal --python-version 3.10 --extra dev --upgrade --quiet --no-annotate \
		--custom-compile-command "make constraints" --output-file .ci/constraints.txt pyproject.toml

format: $(dev)
	$(python) -m ruff check --fix
	$(python) -m ruff format
	clang-format -i $(cxx_sources)

clean:
	rm -rf build dist .venv .tox .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "nnzbench needs Python 3.10 or later: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(VENV)/bin/python -m pip install --quiet --editable '.[dev]'
	@touch $@
