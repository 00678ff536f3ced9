# What a contributor runs; CONTRIBUTING.md says when. `make test PYTHON=python3.12` names another interpreter.
PYTHON ?= $(if $(wildcard .venv/bin/python),.venv/bin/python,python)
WORKERS ?= auto
PYTEST = $(PYTHON) -m pytest -n $(WORKERS)

.PHONY: help test test-all lint fix types contracts golden docs site fuzz check
help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1|/p' Makefile | column -t -s '|'

test: ## the fast tests, about 50 seconds on two cores: on every change
	$(PYTEST) --fast

test-all: ## all tests: before a change is handed in
	$(PYTEST)

lint: ## style and format, without changing anything
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

fix: ## style and format, repaired where that is safe
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

types: ## mypy, strict
	$(PYTHON) -m mypy

contracts: ## which package may import which
	$(PYTHON) -c "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"

golden: ## write the golden predictions and pages anew, and say what moved
	$(PYTHON) tests/predictions.py
	$(PYTHON) -m pytest -q --update-goldens tests/cli/test_golden.py

docs: ## run every example of the documentation
	$(PYTEST) tests/docs

site: ## the site in build/site, with strict links; needs the extra `docs`
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict

fuzz: ## random files and options: no defect, no hang, no file lost
	$(PYTHON) tests/fuzz.py --inputs 25000 --workers 2

check: lint types contracts test-all ## everything that a change must pass, in the present environment
