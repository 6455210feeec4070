# The verbs of the project; CI calls the same ones. `make help` lists them.
SHELL := bash
.DEFAULT_GOAL := help
CARGO ?= cargo
PYTHON ?= python3
VENV := .venv
TARGET := $(or $(CARGO_TARGET_DIR),target)
PORT ?= 8080
TEST_TOOLS := pytest requests grpcio protobuf prometheus-client

.PHONY: help build release demo test test-rust test-python test-blackbox test-all lint fmt bench clean

help: ## List the verbs
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

build: ## Build the binary as the tests use it
	$(CARGO) build --locked --workspace

release: ## Build the binary as users get it
	$(CARGO) build --locked --release -p jitney-cli

demo: release ## Serve the embedded model and print a curl line that works
	$(TARGET)/release/jitney demo --port $(PORT)

test: test-rust test-python test-blackbox ## Set up and run all tests

lint: ## Check formatting, lints and the arrows of the house
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

test-rust: ## Rust tests; the batcher is built alone to prove that it needs nobody
	$(CARGO) build --locked -p jitney-batcher
	$(CARGO) test --locked --workspace

$(VENV)/ready: Makefile
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet $(TEST_TOOLS)
	@touch $@

test-python: $(VENV)/ready ## Tests of the Python packages
	cd python && ../$(VENV)/bin/python -m pytest -q

test-blackbox: $(VENV)/ready build ## Real clients against the real binary
	JITNEY_BIN=$(abspath $(TARGET))/debug/jitney $(VENV)/bin/python -m pytest -q tests

test-all: test ## Everything, with the heavy suites too
	$(CARGO) test --locked --release -p jitney-sim -- --ignored
	JITNEY_BIN=$(abspath $(TARGET))/debug/jitney $(VENV)/bin/python -m pytest -q tests --heavy

fmt: ## Format the code
	$(CARGO) fmt --all

bench: release $(VENV)/ready ## Measure throughput, latency and CPU per request (needs wrk)
	JITNEY_BIN=$(abspath $(TARGET))/release/jitney $(VENV)/bin/python bench/run.py

clean: ## Remove what was built
	$(CARGO) clean
	rm -rf $(VENV)
