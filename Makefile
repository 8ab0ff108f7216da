# make run     load SmolLM2 in a headless Chromium and stream a completion here   PROMPT= MODEL= N= GPU=0|1
# make demo    serve the demo site and print its address                          PORT=
# make test    every test, in CPython and in the browser                          ARGS='-k boot'
# make bench   compare with llama.cpp compiled to WebAssembly, in one Chromium    ARGS='--models smollm2 --threads 1'
# make bench-webgpu    time every kernel of a model on Chromium's WebGPU         ARGS='--models smollm2,synth:1b-Q4_0'
# make gpu-check-kit    a folder that checks and measures this project on a machine with a GPU and no network
# make dist    a plain folder, build/dist, that any static server can host
# Everything needed is set up first and reused afterwards; 'make setup' does only that.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
SITE := build/site
TYPESCRIPT := 5.9.3

PROMPT ?= The capital of France is
MODEL ?= smollm2
N ?= 32
GPU ?=
PORT ?= 8080
ARGS ?=
export PROMPT MODEL N GPU PORT

# Folders too: one that lost a file is newer.
PACKAGE_FILES := $(shell find bridge kernels -not -path '*/__pycache__*' 2>/dev/null)

.PHONY: setup assets kernels wheel snapshot site models gemma minilm run demo test bench bench-webgpu gpu-check-kit dist clean
.DELETE_ON_ERROR:
.NOTPARALLEL:

setup: $(VENV)/.ready build/.browser build/typescript/.$(TYPESCRIPT) site models

$(VENV)/.ready: pyproject.toml requirements-dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; set PYTHON= to one" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --requirement requirements-dev.txt
	$(PY) -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

build/.browser: $(VENV)/.ready tools/browser.py
	$(PY) -m tools.browser
	@mkdir -p build && touch $@

# For the tests of the declarations.
build/typescript/.$(TYPESCRIPT):
	npm install --silent --prefix build/typescript --no-save --no-audit --no-fund typescript@$(TYPESCRIPT)
	@touch $@

assets: $(VENV)/.ready
	@$(PY) -m tools.assets --quiet pyodide

models: $(VENV)/.ready
	@$(PY) -m tools.assets --quiet models

gemma: $(VENV)/.ready
	@$(PY) -m tools.assets --quiet gemma3

minilm: $(VENV)/.ready
	@$(PY) -m tools.minilm

# Looks at what is there and does nothing when it is current.
kernels: $(VENV)/.ready
	@$(PY) -m tools.build_simd

wheel: build/.wheel

build/.wheel: $(VENV)/.ready pyproject.toml README.md LICENSE $(PACKAGE_FILES)
	@rm -rf build/wheels
	$(PY) -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/wheels .
	@touch $@

# Both look at what is there and do nothing when it is current.
snapshot: build/.wheel assets kernels
	@$(PY) -m tools.site $(SITE)
	@node tools/make_snapshot.mjs $(SITE)

site: models snapshot

run: setup
	@$(PY) -m tools.run_page --prompt "$$PROMPT" --model "$$MODEL" --n-predict "$$N" --gpu "$$GPU"

demo: setup
	@$(PY) -m bridge serve $(SITE) --port "$$PORT"

test: gemma minilm setup
	@$(PY) -m tools.run_tests $(ARGS)

bench: gemma minilm setup
	@$(PY) -m tools.bench_page $(ARGS)
	@$(PY) -m tools.bench_embeddings

bench-webgpu: gemma setup
	@$(PY) -m tools.bench_webgpu $(ARGS)

# For a machine with a GPU: copy build/gpu-check there and run tools/gpu_check.sh in it.
gpu-check-kit: $(VENV)/.ready
	@$(PY) -m tools.gpu_check_kit $(ARGS)

dist: site
	@rm -rf build/dist
	@$(PY) -m tools.site --copy build/dist
	@cp -r $(SITE)/snapshot build/dist/snapshot
	@du -sh build/dist

clean:
	rm -rf build $(VENV)
