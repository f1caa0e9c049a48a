# make setup         install the package and its tools into .venv
# make demo          train README's first model with the Python that has the package (PYTHON=...), else in .venv
# make test          run the test suite (eight minutes on two cores)
# make test-quick    run a part of it that takes half a minute: geometry, protocols, layout, options
# make test-slow     run the slow tests
# make test-install  install the package alone into build/venv and run the commands of README and docs there
# make test-recbole RECBOLE_TESTS=DIR   run RecBole's own tests; DIR is the folder tests of its repository at v1.2
# make test-recbole121   run the tests with RecBole 1.2.1, installed into build/recbole121 without its dependencies
# make test-newest   run the tests with the newest releases that pyproject.toml allows, installed into build/newest
# make coverage      run the test suite and measure the lines that it runs; fails below the floor
# make check         run ruff and mypy
# make format        let ruff format the code and fix what it can
# make docs          build the pages of docs/ into build/docs; a broken link is an error
# make paper         write the tables of paper/preprint.tex from results/, and build the PDF in paper/build if there is a TeX
# make bench-NAME ARGS="..."            run benchmarks/bench_NAME.py
# make build         build the wheel and the source archive in dist/
# make release VERSION=X.Y.Z            check everything that a release needs, and print the commands that publish it
# make clean         remove the environment and everything built
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
PYTEST ?= --numprocesses=auto --maxprocesses=4 --dist=worksteal
QUICK := tests/geometry tests/protocols tests/test_architecture.py tests/test_size.py tests/test_options.py

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-quick test-slow test-install test-recbole test-recbole121 test-newest coverage check format docs paper build release clean

help:
	@sed -n 's/^# make/make/p' Makefile

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

demo:
	@$(PYTHON) -c "import recbole_hyper, recbole" 2>/dev/null || $(MAKE) --no-print-directory setup
	@$(PYTHON) -c "import recbole_hyper, recbole" 2>/dev/null && run=$(PYTHON) || run=$(BIN)/python; \
		$$run run_recbole_hyper.py --model=FMLPRecMemory --dataset=ml-100k --epochs=5

test: setup
	$(BIN)/python -m pytest $(PYTEST)

test-quick: setup
	$(BIN)/python -m pytest $(PYTEST) $(QUICK)

coverage: setup
	$(BIN)/python -m pytest $(PYTEST) --cov --cov-report=term:skip-covered

test-slow: setup
	$(BIN)/python -m pytest -m slow

test-install: setup
	$(PYTHON) -m venv --clear build/venv
	build/venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt ".[serve]"
	RECBOLE_HYPER_PYTHON=$(CURDIR)/build/venv/bin/python $(BIN)/python -m pytest -m "slow or not slow" tests/test_readme.py tests/test_docs.py tests/serving/test_week.py

test-recbole: setup
	$(if $(RECBOLE_TESTS),,$(error RECBOLE_TESTS=DIR is missing: the folder tests of RecBole's repository at v1.2))
	PYTHONPATH=$(CURDIR) $(BIN)/python tests/recbole_suite/suite.py $(RECBOLE_TESTS) -q

test-recbole121: setup
	$(PYTHON) -m venv --clear --without-pip build/recbole121
	$(BIN)/python -c "import sysconfig; print('import site; site.addsitedir(%r)' % sysconfig.get_path('purelib'))" \
		> $$(build/recbole121/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/setup.pth
	$(BIN)/python -m pip --python build/recbole121 install --quiet --disable-pip-version-check --no-deps recbole==1.2.1
	build/recbole121/bin/python -m pytest $(PYTEST)

test-newest:
	$(PYTHON) -m venv --clear build/newest
	build/newest/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	build/newest/bin/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	build/newest/bin/python -m pytest $(PYTEST)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	PYTHONPATH=docs/extensions $(BIN)/zensical build --strict

paper: setup
	$(BIN)/python paper/tables.py
	@if command -v latexmk >/dev/null; then \
		cd paper && latexmk -pdf -quiet -interaction=nonstopmode -halt-on-error -outdir=build preprint.tex; \
	elif command -v pdflatex >/dev/null; then \
		cd paper && tex="pdflatex -interaction=batchmode -halt-on-error -output-directory=build preprint.tex"; \
		$$tex && BIBINPUTS=.: bibtex build/preprint && $$tex && $$tex; \
	else echo "no TeX was found: the tables are in paper/build, the PDF was not built"; fi

build: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check build
	$(BIN)/python -m build

release: check test docs build
	@$(BIN)/python .github/release.py $(VERSION)

bench-%: setup
	$(BIN)/python benchmarks/bench_$*.py $(ARGS)

clean:
	rm -rf $(VENV) build paper/build dist *.egg-info
