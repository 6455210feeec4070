# The verbs of the project; CI calls the same ones. `make help` lists them.
# Python environments are groups of tests/pyproject.toml, made by uv from one lock: .venv/NAME.
SHELL := bash
.DEFAULT_GOAL := help
CARGO ?= cargo
PYTHON ?= python3
TARGET := $(or $(CARGO_TARGET_DIR),target)
# Byte code that appears among the packages would make cargo build the engine, which carries them, once more.
export PYTHONPYCACHEPREFIX := $(abspath $(TARGET))/pycache
# Tests have a home of their own. The compiler, which those of artefacts run, stays where it is.
export CARGO_HOME ?= $(HOME)/.cargo
export RUSTUP_HOME ?= $(HOME)/.rustup

PORT ?= 8080
SOAK_SECONDS ?= 1800
FUZZ_SECONDS ?= 60
DIST ?= static wheel image
DIST_PROFILE ?= release
WITH ?= torch
TESTERS ?= 3
PROCESSORS ?= $(shell nproc)
PYTHON_38 ?= $(firstword $(shell python3.8 -c 'import sys; print(sys.executable)' 2>/dev/null) $(wildcard $(HOME)/.pyenv/versions/3.8*/bin/python3.8))

MODELS := models/out
DOCS_SITE := $(TARGET)/docs-site
UV := .tools/uv/bin/uv
DENY := .tools/bin/cargo-deny
FUZZ := .tools/bin/cargo-fuzz
PYTHON_CODE := python tests tools bench models examples fuzz
BINARY := JITNEY_BIN=$(abspath $(TARGET))/debug/jitney
TEST := .venv/test/bin
TORCH := .venv/torch/bin/python
NEW_TORCH := .venv/torch-new/bin/python
RUST_TESTS := --lib --bins --tests
# Where the compiler is clippy itself, as in .ci/run, all that is built is linted: only the examples are left.
LINT_RUST = $(if $(filter clippy-driver,$(RUSTC_WORKSPACE_WRAPPER)),build --locked --workspace --examples,clippy --locked --workspace --all-targets -- -D warnings)
# Documents are read for examples only where there are some: for the rest it takes as long as a check.
DOC_TESTED := -p jitney-batcher
# Crates that open no file and no socket.
PURE := $(foreach crate,batcher settings sim jpeg,$(if $(wildcard crates/$(crate)),-p jitney-$(crate)))

.PHONY: help
help: ## List the verbs
	@awk -F':.*## ' '/^##@ /{printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## /{printf "  %-20s %s\n", $$1, $$2}' Makefile

##@ Start here
.PHONY: demo setup check test fmt release

demo: ## Build the program fast, serve the embedded model and print a curl line that works
	$(CARGO) build --locked --profile demo -p jitney-cli
	$(TARGET)/demo/jitney demo --port $(PORT)

setup: ## Install what tests need of Debian, as root; it says first what (WITH="torch chromium nginx prometheus postgresql go qemu")
	$(PYTHON) tools/debian.py install $(WITH)

check: lint test-pure test-python ## Format, lints, names, arrows and the fast tests; no network, no root

test: test-rust test-python test-blackbox test-torch ## All tests but the heavy ones; changes nothing outside of this folder

fmt: .venv/test/ready ## Format Rust and Python
	$(CARGO) fmt --all
	$(TEST)/ruff check --select I --fix --quiet $(PYTHON_CODE)
	$(TEST)/ruff format --quiet $(PYTHON_CODE)

release: ## Build the binary as users get it
	$(CARGO) build --locked --release -p jitney-cli

##@ Checks
.PHONY: lint deny advisories

lint: .venv/test/ready ## Formatting, lints, names, modules, crates and the Dockerfile
	$(CARGO) fmt --all --check
	$(CARGO) $(LINT_RUST)
	$(TEST)/hadolint Dockerfile
	$(TEST)/ruff check $(PYTHON_CODE)
	$(TEST)/ruff format --check $(PYTHON_CODE)
	$(TEST)/mypy --config-file python/pyproject.toml
	$(PYTHON) tools/check_crates.py
	$(PYTHON) tools/check_modules.py
	$(PYTHON) tools/check_names.py
	$(PYTHON) tools/check_defaults.py
	$(PYTHON) tools/house.py --check
	$(PYTHON) tools/check_sentences.py

deny: $(DENY) ## Licences, sources and uses of libraries (builds cargo-deny once)
	$(DENY) check licenses bans sources

# The advisory database is a git repository: where it cannot be reached this says so, and nobody depends on it.
advisories: $(DENY) ## Known vulnerabilities of libraries, where the advisory database can be reached
	@if $(DENY) fetch db 2> .tools/advisories.log; then $(DENY) --offline check advisories; else \
	  tail -3 .tools/advisories.log; \
	  echo "!!! NOT CHECKED: the advisory database cannot be reached (see above) !!!"; fi

$(DENY):
	$(CARGO) install cargo-deny --version 0.20.2 --locked --debug --root .tools

##@ Tests of one kind
.PHONY: build test-rust test-pure test-python test-blackbox test-torch run-torch-tests test-torch-handlers test-torch-demos models test-ui

# With the tests' features, so that nothing is compiled twice.
build: ## Build the binary and the tests, as the tests use them
	$(CARGO) test --locked --workspace $(RUST_TESTS) --no-run

test-rust: build ## Rust tests; the batcher is built alone to prove that it needs no other crate
	$(CARGO) build --locked -p jitney-batcher
	$(CARGO) test --locked --workspace $(RUST_TESTS)
	$(CARGO) test --locked --doc $(DOC_TESTED)

test-pure: # Rust tests of the crates that open no file and no socket.
	$(CARGO) test --locked --quiet $(PURE)

test-python: .venv/test/ready ## Tests of the Python packages
	cd python && ../$(TEST)/python -m pytest -n $(PROCESSORS)

test-blackbox: build .venv/test/ready ## Real clients against the real binary
	$(BINARY) $(TEST)/python -m pytest -q -n $(TESTERS) --dist loadfile tests

test-torch: build ## Handlers with a real torch: against bare scripts, and the demos with the real binary (TORCH_REQUIRED=1 fails without)
	@if $(PYTHON) tools/debian.py find torch; then $(MAKE) run-torch-tests; else \
	  echo "!!! NO TORCH: the tests of the torch handlers were SKIPPED (see above) !!!"; \
	  exit $(if $(TORCH_REQUIRED),1,0); fi

# Beside each other, since each of them uses one processor most of the time.
run-torch-tests: .venv/torch/ready
	$(MAKE) models MODEL_NAMES="imagenet faces sentiment"
	$(MAKE) --jobs=2 --output-sync test-torch-handlers test-torch-demos

test-torch-handlers: # Handlers against bare scripts.
	$(call torch-handlers,$(TORCH))

test-torch-demos: # Models of ours behind the real binary.
	$(call torch-demos,$(TORCH))

# The files that ask for it.
torch-handlers = cd python && ../$(1) -m pytest $$(grep -lE 'importorskip\("torch"|torch_models' tests/test_*.py)
torch-demos = $(BINARY) JITNEY_TEST_MODELS=$(abspath $(MODELS)) \
  $(1) -m pytest -q -m torch $$(grep -l 'pytest.mark.torch' tests/test_*.py)

models: .venv/torch/ready ## Build archives of real models into models/out (MODEL_NAMES="imagenet faces" for some)
	$(TORCH) models/build/make.py $(MODELS) $(MODEL_NAMES)

test-ui: ui/node_modules/.package-lock.json ## The dashboard's types and unit tests, and whether ui/dist is fresh (node 20 and npm)
	cd ui && npm run --silent test && npm run --silent check

##@ Heavy tests (make setup WITH="torch chromium nginx prometheus postgresql go qemu" brings their programs)
.PHONY: test-all test-heavy test-new-torch test-ray test-compat test-bentoml test-serve test-clouds test-browser pictures test-openapi test-kserve test-formats \
  test-deploy test-mcp test-prometheus test-postgres test-replicas test-install test-arm run-arm-tests test-docs test-notebook test-onnx test-gpu test-examples soak fuzz fuzz-python
ARM_TARGETS := aarch64-unknown-linux-musl aarch64-unknown-linux-gnu
ARM_DIST = CARGO_TARGET_DIR=$(abspath $(TARGET))/arm $(PYTHON) tools/dist.py --profile demo --tools .venv/dist --machine aarch64
INSTALL_TESTS := tests/test_install_static.py tests/test_install_image.py tests/test_install_systemd.py tests/test_wheel.py

test-all: test test-ui test-heavy test-new-torch test-docs test-notebook test-onnx test-ray test-compat test-clouds test-browser test-openapi test-kserve test-formats test-mcp test-deploy test-prometheus test-postgres test-replicas test-install test-arm ## Everything here and above, but the GPU and the soak
	$(CARGO) test --locked --release -p jitney-sim -p jitney-lab -- --ignored
	$(MAKE) deny advisories instructions
	$(MAKE) fuzz fuzz-python FUZZ_SECONDS=10

test-heavy: build .venv/test/ready ## The long runs of the black-box tests
	$(BINARY) $(TEST)/python -m pytest -q tests --heavy --ignore tests/test_onnx_files.py \
	  --ignore tests/test_docs_snippets.py --ignore tests/test_notebook.py --ignore tests/test_install_arm.py $(INSTALL_TESTS:%=--ignore %)

test-new-torch: build .venv/torch-new/ready ## The torch handlers with the newest torch
	$(call torch-handlers,$(NEW_TORCH))
	$(MAKE) models
	$(call torch-demos,$(NEW_TORCH))

test-ray: build .venv/ray/ready .venv/clouds/ready ## Offline jobs and workers on Ray clusters of several nodes on this machine (root: as hosts of their own)
	$(BINARY) RAY_USAGE_STATS_ENABLED=0 CLOUDS_MOTO=$(abspath .venv/clouds/bin/moto_server) \
	  .venv/ray/bin/python -m pytest -q tests/test_infer_ray.py tests/test_infer_folders.py tests/test_ray_dataset.py tests/test_ray_workers.py \
	  tests/test_ray_autoscaling.py --heavy

test-compat: test-bentoml test-serve ## Applications of BentoML and Ray Serve, with the originals and with Jitney

test-bentoml: build .venv/test/ready .venv/torch/ready .venv/bentoml/ready .venv/bentoml-old/ready ## Those of BentoML alone
	$(BINARY) COMPAT_TORCH_PYTHON=$(abspath $(TORCH)) \
	  COMPAT_BENTOML=$(abspath .venv/bentoml/bin) COMPAT_BENTOML_OLD=$(abspath .venv/bentoml-old/bin) \
	  $(TEST)/python -m pytest -q tests/test_compat_bentoml.py --heavy

test-serve: build .venv/ray/ready $(if $(PYTHON_38),.venv/ray-old/ready) ## Those of Ray Serve alone (the older API needs Python 3.8)
	$(BINARY) JITNEY_TEST_OLD_RAY=$(if $(PYTHON_38),$(abspath .venv/ray-old/bin/python)) \
	  .venv/ray/bin/python -m pytest -q tests/test_compat_serve.py tests/test_asgi_apps.py --heavy

test-clouds: build .venv/clouds/ready ## Models from buckets of moto (S3) and Azurite (Azure; needs npm)
	if command -v npm; then npm install --silent --no-fund --no-audit --prefix .venv/clouds azurite; fi
	$(BINARY) CLOUDS_MOTO=$(abspath .venv/clouds/bin/moto_server) \
	  CLOUDS_AZURITE=$(abspath .venv/clouds/node_modules/.bin/azurite-blob) \
	  .venv/clouds/bin/python -m pytest -q tests/test_clouds.py tests/test_platforms.py tests/test_azure.py --heavy

test-browser: build test-ui .venv/browser/ready ## The pages in a real browser (Chromium)
	chromium=$$($(PYTHON) tools/debian.py find chromium) && JITNEY_TEST_CHROMIUM="$$chromium" $(BINARY) \
	  .venv/browser/bin/python -m pytest -q tests/test_browser.py tests/test_dashboard.py tests/test_incidents.py --heavy

pictures: release .venv/browser/ready ## Pictures of the dashboard in eight incidents, into target/pictures (minutes; nothing else should run)
	chromium=$$($(PYTHON) tools/debian.py find chromium) && cd tests && JITNEY_TEST_CHROMIUM="$$chromium" \
	  ../.venv/browser/bin/python -m harness.pictures $(INCIDENTS)

test-openapi: build .venv/openapi/ready ## What makers of clients do with /openapi.json (needs npm; java for openapi-generator)
	npm install --silent --no-fund --no-audit --no-package-lock --prefix .venv/openapi openapi-typescript@7 typescript@5
	$(BINARY) JITNEY_OPENAPI_TOOLS=$(abspath .venv/openapi/bin):$(abspath .venv/openapi/node_modules/.bin) \
	  .venv/openapi/bin/python -m pytest -q tests/test_openapi.py --heavy

test-formats: build .venv/formats/ready ## Models without code, made by the libraries whose formats they are (an environment of 7 GB)
	$(BINARY) .venv/formats/bin/python -m pytest -q tests/test_formats*.py tests/test_llm_applications.py --heavy

test-kserve: build .venv/kserve/ready ## KServe's own clients (an environment of 450 MB)
	$(BINARY) .venv/kserve/bin/python -m pytest -q tests/test_kserve_client.py tests/test_docs_clients.py --heavy

test-mcp: build .venv/mcp/ready ## Endpoints as tools, asked by the official client of the Model Context Protocol
	$(BINARY) .venv/mcp/bin/python -m pytest -q tests/test_mcp.py --heavy

test-deploy: build .venv/kserve/ready ## The manifests of deploy/ against their schemas, their containers, the Helm chart (needs root, npm; go)
	npm install --silent --no-fund --no-audit --no-package-lock --prefix .venv/kserve \
	  @kubernetes-models/keda@2 @kubernetes-models/prometheus-operator@6
	$(BINARY) DEPLOY_NODE_PACKAGES=$(abspath .venv/kserve) .venv/kserve/bin/python -m pytest -q tests/test_deploy.py tests/test_helm.py --heavy

test-prometheus: build .venv/prometheus/ready ## Rules, dashboard and metrics with a real Prometheus
	prometheus=$$($(PYTHON) tools/debian.py find prometheus) && JITNEY_TEST_PROMETHEUS="$$prometheus" $(BINARY) \
	  .venv/prometheus/bin/python -m pytest -q tests/test_prometheus.py --heavy

test-postgres: build .venv/test/ready ## Jobs of several servers in a real PostgreSQL
	@if $(PYTHON) tools/debian.py find postgresql; then $(BINARY) $(TEST)/python -m pytest -q tests/test_jobs_postgres.py tests/test_webhooks.py --heavy; else \
	  echo "!!! NO POSTGRESQL: the tests of jobs in a database were SKIPPED (see above) !!!"; fi

test-replicas: build .venv/test/ready .venv/envoy/ready ## Replicas behind a real nginx and a real Envoy (JITNEY_TEST_MANY_MODELS=1000 for more than 100)
	nginx=$$($(PYTHON) tools/debian.py find nginx) && JITNEY_TEST_NGINX="$$nginx" \
	  JITNEY_TEST_ENVOY=$(abspath .venv/envoy/bin/envoy) $(BINARY) \
	  $(TEST)/python -m pytest -q tests/test_replicas.py --heavy

# The image's base is Debian's root file system with Python, made here, so that no registry is needed.
test-install: build .venv/test/ready ## What `make dist` builds, installed and started, also by a real systemd (needs root and Debian)
	$(MAKE) dist DIST="static wheel"
	flags=$$(bash tests/image-base .tools/image) && eval "$$flags" && $(MAKE) dist DIST=image && \
	  export JITNEY_SYSTEMD_ROOT=$$(bash tests/systemd-root .tools/systemd) && \
	  $(BINARY) JITNEY_WHEEL=$$(ls $(abspath dist)/jitney-*_$$(uname -m).whl) \
	  $(TEST)/python -m pytest -q $(INSTALL_TESTS) --heavy

# Built to compile fast: what counts is that it runs. In a folder of its own, since nothing of the other builds is of use.
test-arm: ## The static program and the image for aarch64, run by qemu (needs root and Debian; rustup fetches standard libraries)
	@if $(PYTHON) tools/debian.py find qemu && rustup target add $(ARM_TARGETS); then $(MAKE) run-arm-tests; else \
	  echo "!!! NO QEMU OR NO STANDARD LIBRARY: the test of the program for aarch64 was SKIPPED (see above) !!!"; fi

run-arm-tests: .venv/dist/ready .venv/test/ready
	$(ARM_DIST) static wheel
	flags=$$(bash tests/image-base .tools/image aarch64) && eval "$$flags" && $(ARM_DIST) image && \
	  $(TEST)/python -m pytest -q tests/test_install_arm.py --heavy

test-docs: build docs .venv/test/ready .venv/browser/ready ## Run every snippet of the documentation, and try the site in a real browser
	$(BINARY) $(TEST)/python -m pytest -q tests/test_docs_snippets.py --heavy
	chromium=$$($(PYTHON) tools/debian.py find chromium) && JITNEY_TEST_CHROMIUM="$$chromium" \
	  JITNEY_DOCS_SITE=$(abspath $(DOCS_SITE)) .venv/browser/bin/python -m pytest -q tests/test_docs_browser.py --heavy

test-notebook: build .venv/notebook/ready ## The notebook of examples/ in a real kernel
	$(BINARY) .venv/notebook/bin/python -m pytest -q tests/test_notebook.py --heavy

test-onnx: build .venv/torch/ready .venv/onnx/ready ## ONNX files of many origins beside bare ONNX Runtime
	$(BINARY) .venv/onnx/bin/python -m pytest -q tests/test_onnx_files.py --heavy

test-examples: build .venv/examples/ready .venv/test/ready ## Other projects' own examples, from checkouts by path (RAY=… BENTOML=… TRITON_SERVER=… TRITON_CLIENT=… TORCHSERVE=…, whose Python with torch is TORCHSERVE_PYTHON, and NEWMAN the program for its Postman collections; ONNX_PACKAGES=… and FORMAT_PACKAGES=… are folders for packages with ONNX files and with other models; SAGEMAKER=… AWS's PyTorch toolkit, SAGEMAKER_INFERENCE=… its inference toolkit and SAGEMAKER_IMAGES=… its images, whose Python with torch and transformers is SAGEMAKER_PYTHON, as root, and SAGEMAKER_PACKAGES=… a folder for its packages; AZURE=… Azure's inference server, whose Python with flask, psutil and inference-schema is AZURE_PYTHON, as root)
	$(BINARY) .venv/examples/bin/python tests/examples/ray.py "$(RAY)"
	$(BINARY) .venv/examples/bin/python tests/examples/bentoml.py "$(BENTOML)"
	$(BINARY) $(or $(TORCHSERVE_PYTHON),.venv/examples/bin/python) tests/examples/torchserve.py "$(TORCHSERVE)"
	$(BINARY) $(or $(TORCHSERVE_PYTHON),.venv/examples/bin/python) tests/examples/torchserve_examples.py "$(TORCHSERVE)"
	$(BINARY) NEWMAN=$(NEWMAN) $(or $(TORCHSERVE_PYTHON),.venv/examples/bin/python) tests/examples/torchserve_suites.py "$(TORCHSERVE)"
	$(BINARY) $(TEST)/python tests/examples/onnx_files.py "$(ONNX_PACKAGES)"
	$(BINARY) $(or $(SAGEMAKER_PYTHON),.venv/examples/bin/python) tests/examples/sagemaker.py "$(SAGEMAKER)" "$(SAGEMAKER_IMAGES)"
	$(or $(SAGEMAKER_PYTHON),.venv/examples/bin/python) tests/examples/sagemaker_units.py "$(SAGEMAKER)" "$(SAGEMAKER_INFERENCE)"
	$(BINARY) $(or $(SAGEMAKER_PYTHON),.venv/examples/bin/python) tests/examples/sagemaker_toolkit.py "$(SAGEMAKER_PACKAGES)"
	$(BINARY) $(or $(AZURE_PYTHON),.venv/examples/bin/python) tests/examples/azure.py "$(AZURE)"
	$(if $(FORMAT_PACKAGES),$(MAKE) .venv/formats/ready)
	$(BINARY) $(if $(FORMAT_PACKAGES),.venv/formats/bin/python,$(TEST)/python) tests/examples/formats.py "$(FORMAT_PACKAGES)"
	TRITON_SERVER="$(TRITON_SERVER)" TRITON_CLIENT="$(TRITON_CLIENT)" $(BINARY) $(TEST)/python tests/examples/triton.py

# GPU_PYTHON=python3 takes a torch that is there; it needs no pytest.
test-gpu: $(if $(GPU_PYTHON),,.venv/torch-new/ready) ## Stock handlers on a real GPU: nvJPEG, CUDA graphs, streams; an ONNX model where ONNX Runtime has CUDA (ONNX_CUDA_LIBRARY=…, after make build)
	@if ! $(or $(GPU_PYTHON),$(NEW_TORCH)) models/build/make.py $(MODELS) imagenet; then \
	  echo "!!! NO IMAGENET MODEL: the test with real weights will be SKIPPED (see above) !!!"; fi
	$(or $(GPU_PYTHON),$(NEW_TORCH)) python/tests/test_gpu.py
	$(if $(wildcard $(TARGET)/debug/jitney),$(BINARY)) $(or $(GPU_PYTHON),$(NEW_TORCH)) tests/gpu_onnx.py

soak: build .venv/test/ready ## Half an hour under load while things go wrong (SOAK_SECONDS=600 for less)
	faketime=$$(bash tests/soak/faketime $(abspath .tools)/faketime) && cd tests && \
	  $(BINARY) ../$(TEST)/python -m soak --seconds $(SOAK_SECONDS) $${faketime:+--faketime "$$faketime"}

# Without a nightly compiler, which coverage does not need and sanitizers would.
fuzz: $(FUZZ) ## Fuzz every target for FUZZ_SECONDS (60); FUZZ_TARGETS="urls forms" for some
	$(PYTHON) fuzz/run.py --cargo-fuzz $(abspath $(FUZZ)) --seconds $(FUZZ_SECONDS) $(FUZZ_TARGETS)

fuzz-python: .venv/fuzz/ready ## The same for what Python reads: files of clients, values of handles (FUZZ_PYTHON="client_files")
	.venv/fuzz/bin/python fuzz/run_python.py --seconds $(FUZZ_SECONDS) $(FUZZ_PYTHON)

$(FUZZ):
	$(CARGO) install cargo-fuzz --version 0.13.2 --locked --debug --root .tools

##@ Measure
.PHONY: bench bench-peers instructions record-instructions build-instructions

bench: release .venv/test/ready ## Throughput, latency and CPU per request (needs wrk)
	JITNEY_BIN=$(abspath $(TARGET))/release/jitney $(TEST)/python bench/run.py

# Installs into JITNEY_PEERS_DIR (~/.cache/jitney-peers), once. All of it takes about 40 minutes; a part, and the way to
# add another one to the same page: make bench-peers PEERS=mosec WORKLOADS="W1 W4"; make bench-peers PEERS=ray APPEND=1
bench-peers: release ## Jitney beside other servers, written to docs/reference/performance.md (needs wrk, h2load; Java)
	JITNEY_BIN=$(or $(JITNEY_BIN),$(abspath $(TARGET))/release/jitney) $(PYTHON) -m bench.peers run \
	  $(if $(PEERS),--only "$(PEERS)") $(if $(WORKLOADS),--workloads "$(WORKLOADS)") $(if $(ROUNDS),--rounds $(ROUNDS)) \
	  $(if $(SECONDS),--seconds $(SECONDS)) $(if $(OVERLOAD_SECONDS),--overload-seconds $(OVERLOAD_SECONDS)) \
	  $(if $(SLOW_SHARE),--slow-share $(SLOW_SHARE)) $(if $(APPEND),--append)

# Counts instead of times: they hardly depend on the machine, and not on what else runs on it.
COUNT = JITNEY_BIN=$(abspath $(TARGET))/instructions/jitney \
  JITNEY_COST=$(abspath $(TARGET))/instructions/examples/cost $(TEST)/python bench/instructions.py

instructions: build-instructions ## Fail if a hot path costs more instructions than recorded (needs valgrind)
	$(COUNT)

record-instructions: build-instructions ## Record what the hot paths cost now
	$(COUNT) --record

build-instructions: .venv/test/ready
	$(CARGO) build --locked --profile instructions -p jitney-cli --bin jitney
	$(CARGO) build --locked --profile instructions -p jitney-batcher --example cost

##@ Build other things
.PHONY: dist sizes docs ui lock clean

dist: .venv/dist/ready ## Static binary, wheel and image into dist/ (DIST="static wheel" for some; the image needs buildah)
	$(PYTHON) tools/dist.py --profile $(DIST_PROFILE) --tools .venv/dist $(DIST)

sizes: ## Sizes of what lies in dist/; of an image also what it takes in a registry and unpacked
	@$(PYTHON) tools/dist.py --sizes

docs: .venv/docs/ready ## The documentation site into target/docs-site; it can be read from the disk
	NO_MKDOCS_2_WARNING=1 .venv/docs/bin/mkdocs build --quiet --clean --strict --site-dir $(abspath $(DOCS_SITE))
	@echo "open $(abspath $(DOCS_SITE))/index.html"

ui: ui/node_modules/.package-lock.json ## The dashboard into ui/dist (node 20 and npm)
	cd ui && npm run --silent build

ui/node_modules/.package-lock.json: ui/package.json ui/package-lock.json
	cd ui && npm ci --ignore-scripts --silent
	@touch $@

lock: $(UV) ## Solve the lock of the Python environments anew, after a change of tests/pyproject.toml
	$(PYTHON) tools/environment.py --lock

clean: ## Remove everything that was built or fetched into this folder
	$(CARGO) clean
	rm -rf fuzz/target fuzz/found fuzz/artifacts dist logs .venv .tools $(MODELS) ui/node_modules bench/out
	find . -name __pycache__ -prune -exec rm -rf {} +
	find . \( -name .pytest_cache -o -name .ruff_cache -o -name .mypy_cache -o -name '*.egg-info' \) -prune -exec rm -rf {} +

# Python environments: `.venv/NAME/ready` is the group NAME of tests/pyproject.toml.
.PRECIOUS: .venv/%/ready
.venv/%/ready: tests/uv.lock tools/environment.py | $(UV)
	$(PYTHON) tools/environment.py $*
	@touch $@

# Beside Debian's torch, which is small.
.venv/torch/ready: tests/uv.lock tools/environment.py | $(UV)
	python=$$($(PYTHON) tools/debian.py find torch) && $(PYTHON) tools/environment.py torch --python "$$python" --beside-system
	$(TORCH) -c 'import torch, torchvision'
	@touch $@

.venv/ray-old/ready: tests/uv.lock tools/environment.py | $(UV)
	$(PYTHON) tools/environment.py ray-old --python $(PYTHON_38)
	@touch $@

.venv/examples/ready: tests/examples/requirements.txt
	$(PYTHON) -m venv .venv/examples
	.venv/examples/bin/python -m pip install --quiet -r $<
	@touch $@

$(UV):
	$(PYTHON) -m venv .tools/uv
	.tools/uv/bin/python -m pip install --quiet uv==0.13.7
