# What a contributor runs; CONTRIBUTING.md says when. PYTHON may name an interpreter of another environment.
PYTHON ?= python

.PHONY: golden
golden: ## write the golden table of predictions anew, and say what moved
	$(PYTHON) tests/predictions.py
