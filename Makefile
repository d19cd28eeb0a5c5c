# `make demo` and `make test` set up what they need in .venv.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.dev-installed

# The first Python that TensorFlow 2.15 supports; override with PYTHON=...
PYTHON ?= $(shell for python in python3.11 python3.10 python3 python; do \
	$$python -c 'import sys, venv, ensurepip; \
	sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 11))' 2>/dev/null \
	&& echo $$python && break; done)

.PHONY: demo test lint clean

demo: $(STAMP)
	$(BIN)/python tools/demo.py

test: $(DEV_STAMP)
	$(BIN)/python -m pytest --numprocesses=logical --maxprocesses=5 --dist=loadfile --no-loadscope-reorder

lint: $(DEV_STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

clean:
	rm -rf $(VENV) runs .pytest_cache .ruff_cache *.egg-info

$(STAMP): requirements.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "supcon_tf needs Python 3.10 or 3.11 with\
	 venv: install python3.11 and python3.11-venv (Debian, Ubuntu), or run\
	 'pyenv install 3.11', or pass PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=24"
	$(BIN)/python -m pip install --quiet -r requirements.txt -e .
	@touch $@

$(DEV_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet -r requirements.txt -e ".[dev]"
	@touch $@
