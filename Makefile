# Two commands do everything on a fresh machine:
#   make run     set up, serve the bundled model, answer a prompt
#   make test    set up, run every test that this machine can run
# VENV is the environment that they make and use.

# Every process that the targets start reads modules that are compiled already, whatever the environment says: PyTorch
# takes four seconds to compile.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PROTOS := $(wildcard proto/v1/*.proto)
PROTOC := PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m grpc_tools.protoc -Isrc
# The environment's own, unless set otherwise.
GPU_PYTHON ?= $(BIN)/python
# To read PyTorch takes mypy a minute: what it found is kept where other clones find it. It checks that by content.
export MYPY_CACHE_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/octavo/mypy
PROMPT ?= What is the capital of France?

.PHONY: run test test-gpu prove-gpu check setup lint types imports stale format proto crd drawings unit pins cluster cluster-down bed programs clean

run: setup
	@exec $(BIN)/octavo run --prompt "$(PROMPT)"

test: setup programs
	$(BIN)/python tests/suites.py $(PYTEST)

# On a machine with a GPU, by any Python that has PyTorch and pytest there.
test-gpu:
	PYTHONPATH=src $(GPU_PYTHON) -m octavo.kernels.build
	PYTHONPATH=src $(GPU_PYTHON) -m pytest -c tests/gpu.ini --rootdir . tests/kernels tests/gpu -m gpu $(PYTEST)

unit: setup
	$(BIN)/python -m pytest -q tests/unit tests/kernels tests/contract $(PYTEST)

# The same in a cluster: a service on this machine's GPU, from `helm install` on. Needs root and the bed (`make programs`).
prove-gpu:
	PYTHONPATH=src:tests:benchmarks $(GPU_PYTHON) tests/cluster/gpu/prove.py $(PROVE)

check: lint types imports stale

# Where there is a GPU, its kernels are compiled too: a few minutes once, kept in ~/.cache/octavo/kernels.
GPU := $(shell command -v nvidia-smi)

setup: $(READY) kernels/lib/cpu.so kernels/lib/chunk_sums.so $(if $(GPU),kernels/lib/.cuda)

$(READY): constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "octavo needs Python 3.11 or newer; set PYTHON=")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(BIN)/uv || $(BIN)/python -m pip install -q --disable-pip-version-check "$$(sed -n 's/^\(uv==[^ ;]*\).*/\1/p' constraints.txt)"
	$(BIN)/uv pip install --python $(BIN)/python --require-hashes --no-deps -r constraints.txt
	$(BIN)/uv pip install --python $(BIN)/python --no-deps --no-build-isolation -e ./
	@touch $@

kernels/lib/cpu.so: kernels/csrc/cpu/cpu.cpp kernels/csrc/cpu/cpu_simd.h kernels/build.py | $(READY)
	@if command -v c++ || command -v g++ || command -v clang++; then $(BIN)/python -m octavo.kernels.build cpu; \
	  else echo "without a C++ compiler the CPU runs PyTorch's kernels, at half the speed; Debian: apt-get install g++" >&2; \
	  fi >/dev/null

kernels/lib/chunk_sums.so: kernels/csrc/cpu/chunk_sums.cpp kernels/build.py | $(READY)
	@if command -v c++ || command -v g++ || command -v clang++; then $(BIN)/python -m octavo.kernels.build chunk_sums; \
	  fi >/dev/null

CUDA_SOURCES := $(wildcard kernels/csrc/*.cu kernels/csrc/*/*.cu)

kernels/lib/.cuda: $(CUDA_SOURCES) $(wildcard kernels/csrc/*/*.cuh) kernels/build.py kernels/nvcc.txt | $(READY)
	$(BIN)/python -m octavo.kernels.build $(basename $(notdir $(CUDA_SOURCES)))
	@touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: setup
	$(BIN)/mypy

imports: setup
	$(BIN)/lint-imports

# The table of the routers' settings in a page of the documentation, from and to a pipe.
SETTINGS := $(BIN)/python -m octavo.operator.api.settings_page

# Generated files must be what their sources give.
stale: setup
	@work=$$(mktemp -d) && trap 'rm -rf "$$work"' EXIT && mkdir -p "$$work/octavo/proto/v1" \
	  && $(PROTOC) --python_out="$$work" --grpc_python_out="$$work" --mypy_out=quiet:"$$work" --mypy_grpc_out=quiet:"$$work" \
	       $(PROTOS:%=src/octavo/%) \
	  && for f in proto/v1/*_pb2*; do cmp "$$f" "$$work/octavo/$$f" || { echo "$$f is stale: make proto" >&2; exit 1; }; done
	@$(BIN)/octavo crd | cmp - charts/octavo/files/crds/inferenceservices.yaml || { echo "the CRD is stale: make crd" >&2; exit 1; }
	@$(SETTINGS) < docs/operations.md | cmp - docs/operations.md || { echo "docs/operations.md is stale: make crd" >&2; exit 1; }
	@for source in $(DRAWN); do grep -qF "<!-- $$($(call DIGEST,$$source)) -->" $${source%.d2}.svg \
	  || { echo "$${source%.d2}.svg is stale: make drawings" >&2; exit 1; }; done

proto: setup
	$(PROTOC) --python_out=src --grpc_python_out=src --mypy_out=quiet:src --mypy_grpc_out=quiet:src $(PROTOS:%=src/octavo/%)

crd: setup
	$(BIN)/octavo crd > charts/octavo/files/crds/inferenceservices.yaml
	page=$$(mktemp) && $(SETTINGS) < docs/operations.md > $$page && cat $$page > docs/operations.md && rm $$page

# Pictures of the documentation, by D2 in a folder of its own. Each picture ends with the hash of its sources, by which
# `make check` sees without D2 whether it is stale.
DRAWINGS := docs/drawings
DRAWN    := $(filter-out $(DRAWINGS)/style.d2,$(wildcard $(DRAWINGS)/*.d2))
SPACING  := --elk-nodeNodeBetweenLayers 24 --elk-edgeNodeBetweenLayers 18 --elk-padding '[top=28,left=28,bottom=48,right=28]'
DIGEST    = { echo "$(SPACING)"; cat $(1) $(DRAWINGS)/style.d2; } | sha256sum | cut -c1-16

drawings: setup
	@test -x build/d2/bin/d2 || $(BIN)/uv pip install -q --target build/d2 --no-deps --require-hashes -r $(DRAWINGS)/constraints.txt
	@for source in $(DRAWN); do picture=$${source%.d2}.svg; build/d2/bin/d2 $(SPACING) $$source $$picture \
	  && echo "<!-- $$($(call DIGEST,$$source)) -->" >> $$picture || exit 1; done

COMPILE := $(BIN)/uv pip compile -q --universal --generate-hashes --python-version 3.11 --no-annotate --no-header
CLIENTS := tests/support/clients

# After a change of dependencies in pyproject.toml, or of the clients that only tests install, apart from all else.
pins: setup
	$(COMPILE) --all-extras --group bundled-model pyproject.toml -o constraints.txt
	$(COMPILE) --override $(CLIENTS)/overrides.txt $(CLIENTS)/requirements.in -o $(CLIENTS)/constraints.txt
	$(COMPILE) $(DRAWINGS)/requirements.in -o $(DRAWINGS)/constraints.txt

# The Kubernetes that the tests run on: built once, cached outside the tree. Images take minutes after a change: the
# first test that wants them builds them, while others run.
bed:
	tests/cluster/bed/prepare.sh

programs:
	tests/cluster/bed/prepare.sh --programs

# A cluster with our images, left running for a person; and its end.
cluster:
	tests/cluster/bed/cluster.sh

cluster-down:
	tests/cluster/bed/cluster.sh down

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
