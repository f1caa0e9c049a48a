# make demo: train HSASRecCE on ml-100k and print its table.  make test: the test suite.  make check: lint and types.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow test-install test-recbole check format docs clean

help:
	@grep -h '^# make' Makefile

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

demo: setup
	$(BIN)/python run_recbole_hyper.py --model=HSASRecCE --dataset=ml-100k

test: setup
	$(BIN)/python -m pytest --numprocesses=auto --maxprocesses=4 --dist=worksteal

test-slow: setup
	$(BIN)/python -m pytest -m slow

# make test-install installs the package alone into build/venv and types what README and docs say there
test-install: setup
	$(PYTHON) -m venv --clear build/venv
	build/venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt ".[export]"
	RECBOLE_HYPER_PYTHON=$(CURDIR)/build/venv/bin/python $(BIN)/python -m pytest -m "slow or not slow" tests/test_readme.py tests/test_docs.py

# make test-recbole RECBOLE_TESTS=DIR runs RecBole's own tests, DIR being the folder tests of its repository at v1.2
test-recbole: setup
	$(if $(RECBOLE_TESTS),,$(error RECBOLE_TESTS=DIR is missing: the folder tests of RecBole's repository at v1.2))
	PYTHONPATH=$(CURDIR) $(BIN)/python tests/recbole_suite/suite.py $(RECBOLE_TESTS) -q

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# make docs builds the pages of docs/ into build/docs; a broken link is an error
docs: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	$(BIN)/mkdocs build --strict --quiet --site-dir build/docs

# make bench-<name> runs benchmarks/bench_<name>.py; ARGS="--minutes=1" are its options
bench-%: setup
	$(BIN)/python benchmarks/bench_$*.py $(ARGS)

clean:
	rm -rf $(VENV) build *.egg-info
