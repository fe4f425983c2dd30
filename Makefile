# make quickstart   from a clone to a comparison of trained networks
# make test         everything that is checked: lint, types, tests
# make lint         lint and types alone
# make check        the fast part of the tests, for while you work
# make test-slow    the tests that take minutes
# make test-slurm   jobs of a Slurm of one node, which is started for it (needs root; installs Debian's packages)
# make reliability  the long measurements of docs/reliability.md (three hours; as root, for the disks)
# make bench        speed and memory, as ratios, and the page about them (keep the machine quiet)
# make docs         the documentation as a site, in site/
# make wheel        the package as a wheel and a source archive, in dist/
# make clean        remove what these commands made

PYTHON ?= python3
BIN := .venv/bin
STAMPS := .venv/stamps
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps
LOCKED := $(PIP) --require-hashes --only-binary=:all: -r

.PHONY: quickstart test lint check test-slow test-slurm reliability bench docs wheel clean

quickstart: $(STAMPS)/core
	$(BIN)/torchcaps compare capsnet convnet-avg convnet-fc --data mnist --size laptop --epochs 1 \
	    --train-images 12000 --out runs/quickstart

test: lint
	$(BIN)/pytest -n 2

lint: $(STAMPS)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: $(STAMPS)/dev
	$(BIN)/python -m pip check
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2 -x -m "not slow and not process"

test-slow: $(STAMPS)/dev
	$(BIN)/pytest -m slow

test-slurm: $(STAMPS)/dev
	sh scripts/install_slurm.sh
	$(BIN)/python -m tests.slurm

# All of them run even if one finds something wrong; then the exit code is not 0. Shorter: make reliability KILLS=20
KILLS = 120
DISKS = 10
INPUTS = 100000
IMAGES = 10000
OUT = results/reliability
reliability: $(STAMPS)/dev
	$(BIN)/python -m tests.reliability --kills $(KILLS) --disks $(DISKS) --inputs $(INPUTS) --images $(IMAGES) \
	    --out $(OUT); code=$$?; $(BIN)/python scripts/reliability_page.py && exit $$code

bench: $(STAMPS)/core
	$(BIN)/torchcaps bench claims --compile
	$(BIN)/torchcaps bench step
	$(BIN)/torchcaps bench memory
	$(BIN)/torchcaps bench growth
	$(BIN)/torchcaps bench malloc
	$(BIN)/torchcaps bench data
	$(BIN)/python scripts/performance_page.py

docs: $(STAMPS)/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

wheel: $(STAMPS)/dev
	$(BIN)/python -m build --no-isolation

clean:
	rm -rf .venv site dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(STAMPS)/core: pyproject.toml requirements/core.txt scripts/install_torch.sh
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "torchcaps needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	mkdir -p $(STAMPS)
	sh scripts/install_torch.sh $(BIN)/python
	$(LOCKED) requirements/core.txt
	$(PIP) --no-build-isolation -e .
	touch $@

$(STAMPS)/dev: $(STAMPS)/core requirements/dev.txt scripts/install_chromium.sh
	$(LOCKED) requirements/dev.txt
	sh scripts/install_chromium.sh
	touch $@

$(STAMPS)/docs: $(STAMPS)/core requirements/docs.txt
	$(LOCKED) requirements/docs.txt
	touch $@
