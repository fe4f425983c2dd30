# make quickstart   install, train three networks and compare them
# make test         all checks: lint, types, tests
# make lint         lint and types only
# make check        fast checks while you work
# make test-slow    tests that take minutes
# make test-gpu-kernels   Triton kernels, interpreted and compiled, on a machine without a GPU (installs Triton)
# make test-slurm   jobs on a one-node Slurm cluster on this machine (needs root; installs Debian packages)
# make reliability  the long measurements of docs/reliability.md (an hour; needs root to mount disks)
# make bench        benchmarks of speed and memory, and their page (keep the machine idle)
# make docs         build the documentation into site/
# make wheel        build a wheel and a source distribution into dist/
# make clean        remove everything that these commands created

PYTHON ?= python3
BIN := .venv/bin
STAMPS := .venv/stamps
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps
LOCKED := $(PIP) --require-hashes --only-binary=:all: -r

.PHONY: quickstart test lint check test-slow test-gpu-kernels test-slurm reliability bench docs wheel clean

quickstart: $(STAMPS)/core
	$(BIN)/torchcaps compare capsnet convnet-avg convnet-fc --data mnist --size laptop --epochs 1 \
	    --train-images 12000 --out runs/quickstart

test: lint
	$(BIN)/pytest -n 2 --dist worksteal

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

test-gpu-kernels: $(STAMPS)/gpu
	TRITON_INTERPRET=1 $(BIN)/pytest -m gpu tests/kernels/test_triton.py
	$(BIN)/pytest -m gpu tests/kernels/test_triton_compile.py

test-slurm: $(STAMPS)/dev
	sh scripts/install_slurm.sh
	$(BIN)/python -m tests.slurm

# All measurements run even if one fails; the exit code is then not 0. For a shorter run: make reliability KILLS=20
KILLS = 120
DISKS = 10
INPUTS = 100000
IMAGES = 2000
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

$(STAMPS)/gpu: $(STAMPS)/dev requirements/gpu.txt
	$(LOCKED) requirements/gpu.txt
	touch $@

$(STAMPS)/docs: $(STAMPS)/core requirements/docs.txt
	$(LOCKED) requirements/docs.txt
	touch $@
