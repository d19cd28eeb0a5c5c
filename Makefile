# `make demo` and `make test` set up what they need in .venv. They take the first
# Python that they find; PYTHON=/path/to/python chooses another.

# The reference platform first, then the newest.
MINORS := 11 10 12 13
PYTHONS = $(shell for minor in $(MINORS); do \
	for python in python3.$$minor python3 python \
	$(HOME)/.pyenv/versions/3.$$minor.*/bin/python; do \
	$$python -c "import sys, venv, ensurepip; \
	sys.exit(sys.version_info[:2] != (3, $$minor))" 2>/dev/null \
	&& echo $$python && break; done; done)
ifeq ($(origin PYTHON),undefined)
PYTHON := $(firstword $(PYTHONS))
endif
VERSION := $(if $(PYTHON),$(shell $(PYTHON) -V | cut -c8-11))
LOCK := requirements$(if $(filter 3.10 3.11,$(VERSION)),,-newest).txt

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed-$(VERSION)
DEV_STAMP := $(VENV)/.dev-installed-$(VERSION)
# Python compiles a module when something imports it first. To compile all that
# pip installs takes longer, and most of it is never imported.
INSTALL := $(BIN)/python -m pip install --quiet --no-compile -c $(LOCK)
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo check test test-slow test-all test-platforms bench-gpu python lint docs release-check clean

demo: $(STAMP)
	$(BIN)/python tools/demo.py

# In three tiers: check, at every save; test; test-slow, the long ones.
# test-all is the last two.
PYTEST := $(BIN)/python -m pytest --numprocesses=logical --maxprocesses=5 \
	--dist=loadfile --no-loadscope-reorder

check: $(DEV_STAMP)
	$(PYTEST) --quick

test: $(DEV_STAMP)
	$(PYTEST)

test-slow: $(DEV_STAMP)
	$(PYTEST) --run_slow -m slow

test-all: $(DEV_STAMP)
	$(PYTEST) --run_slow

test-platforms:
	for python in $(PYTHONS); do $(MAKE) test PYTHON=$$python \
	VENV=.venv-$$($$python -V | cut -c8-11) || exit 1; done

# Tables of a GPU, or of the CPU where there is none; LOSS, STEP and SERVING are
# further flags.
GPU_RUNS := runs/bench_gpu
bench-gpu: $(DEV_STAMP)
	$(if $(shell command -v nvidia-smi),$(INSTALL) -e ".[gpu]")
	mkdir -p $(GPU_RUNS)
	for bench in "loss $(LOSS)" "step $(STEP)" "serving $(SERVING)"; do \
	set -- $$bench && name=$$1 && shift && \
	$(BIN)/python benchmarks/$$name.py --device=gpu --run_dir=$(GPU_RUNS) "$$@" \
	> $(GPU_RUNS)/$$name.md && cat $(GPU_RUNS)/$$name.md || exit 1; done

lint: $(DEV_STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

# The site, in runs/site: broken links and anchors fail, and misspelled words.
docs: $(DEV_STAMP)
	$(BIN)/codespell README.md WORKSPACE.md CHANGELOG.md docs serving \
	--skip='*.png,*.json,*.ipynb'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Wheel and sdist, in runs/dist, and the demo by the wheel where no checkout is.
release-check: $(DEV_STAMP)
	rm -rf runs/dist runs/release
	$(BIN)/python -m build --outdir runs/dist
	$(PYTHON) -m venv runs/release/venv
	runs/release/venv/bin/python -m pip install --quiet -c $(LOCK) \
	"$$(ls runs/dist/*.whl)[serving]"
	cd runs/release && venv/bin/supcon demo --epochs=2

clean:
	rm -rf .venv* runs .pytest_cache .ruff_cache *.egg-info

python:
	@test -n "$(PYTHON)" || { echo "supcon_tf needs Python 3.10 to 3.13 with\
	 venv: install python3.11 and python3.11-venv (Debian, Ubuntu), or run\
	 'pyenv install 3.11', or pass PYTHON=/path/to/python" >&2; exit 1; }

$(STAMP): $(LOCK) pyproject.toml | python
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=24"
	$(INSTALL) -e ".[serving]"
	@touch $@

$(DEV_STAMP): $(STAMP)
	$(INSTALL) -e ".[dev]"
	@touch $@
