# Every target sets up its own environment first; `make` alone lists them.

PYTHON  ?= python3
WORKERS ?= 4  # on two cores: many tests wait for processes and clocks

VENV  := .venv
BIN   := $(VENV)/bin
READY := $(VENV)/.ready
SITE  := $(VENV)/.docs

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help setup lint test reference docs conformance demo bench nightly long clean

help:  ## Print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY)  ## Make the environment in .venv (PYTHON=python3.12 picks another interpreter)

# The stamp is touched last, so an interrupted setup is done again. Two -q: pip's warnings about
# the indexes it was configured with say nothing about this project; its errors still show.
$(READY): pyproject.toml constraints.txt
	@echo "setup   $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Trails needs Python 3.11 or newer: make PYTHON=python3.11")'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

lint: setup  ## Check style, types and the direction of imports
	@echo "ruff    check";  $(BIN)/ruff check --quiet .
	@echo "ruff    format"; $(BIN)/ruff format --quiet --check .
	@echo "mypy    src";    $(BIN)/mypy --no-error-summary
	@echo "imports";        out=$$($(BIN)/lint-imports --no-logo) || { echo "$$out"; exit 1; }

# Workers, and the processes that tests start, share the compiled files of this project (a variable
# that is empty permits them). Stealing work keeps the tests of a file together, so that what they
# share is made once.
test: lint  ## Lint, then run the tests
	@echo "pytest";         PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --prove

reference: setup  ## Write the parts of the documentation that are made by running the code
	@TRAILS_UPDATE_GOLDEN=1 $(BIN)/python -m pytest -q -p no:xdist tests/docs/test_reference.py tests/docs/test_tutorial.py

$(SITE): $(READY)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

docs: $(SITE)  ## Build the documentation into build/docs; a link that leads nowhere fails
	@$(BIN)/sphinx-build -q -W --keep-going -j auto docs build/docs
	@echo "docs    build/docs/index.html"

conformance: setup  ## Run the official MCP suite, and check card and OpenAPI (npm and pip install it once)
	@$(BIN)/python -m tests.conformance

demo: setup  ## Serve the Northline example and take a tour (TOUR=all: all of it; DEMO_ONCE=1: then end)
	@$(BIN)/python examples/northline/demo.py

bench: setup  ## Measure, and compare with the targets (PART=calls: only a part, here MCP and REST)
	@$(BIN)/python -m bench $(addprefix --only ,$(PART))

nightly: setup  ## Run every campaign at a size that ends within 20 minutes on two cores
	@$(call campaigns,nightly)

long: setup  ## Run every campaign (crashes, damage, fuzzing) to its end: hours on two cores
	@$(call campaigns,long)

# What measures time has the machine for itself. A campaign that hangs is ended after an hour.
campaigns = export TRAILS_CAMPAIGN=$(1) TRAILS_CAMPAIGN_BEGUN=$$(date +%s); run="$(BIN)/python -m pytest -v --timeout 3600"; failed=0; \
	$$run -m 'long and alone' -n 0 || failed=1; \
	$$run -m 'long and not alone' -n 2 --dist worksteal || failed=1; exit $$failed

clean:  ## Remove the environment, caches and outputs
	@rm -rf $(VENV) build dist tests/out .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -path ./.git -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +
