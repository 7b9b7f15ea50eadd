# Two commands for everybody: `make demo` and `make test`. Each sets up what it needs in .venv; `make build` does just that.
# While you work: `make check`, in a minute and a half.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build

PYTHON ?= python3
BIN := .venv/bin
RUST := $(shell find broker/engine limiting/core bench/loadgen bench/simulator_engine srtm/native -name '*.rs' -o -name Cargo.toml 2>/dev/null) Cargo.toml Cargo.lock
PACKAGES := srtm broker distributor adaptor limiting bench
# How many processes share the tests. Most of the slow ones wait: one more than the two processors of a small machine.
WORKERS ?= 3
PYTEST = $(BIN)/pytest --numprocesses $(WORKERS) --dist worksteal
# Where `make wheels` puts them.
DIST ?= dist
ARM := aarch64-unknown-linux-gnu
PEERS := .peers/nsqd .peers/nsqlookupd .peers/nsqadmin

.PHONY: build wheels check demo test test-full test-pg lint peers floor bench-nsqd figures calibrate figures-real interop interop-mqtt soak model fuzz clean

build: .venv/built

# Each line says what is missing, in one line, before anything is done.
.venv/installed: requirements-dev.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "missing: Python 3.11 or newer (as $(PYTHON); name another with PYTHON=...)" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "missing: Python's venv module (Debian: apt-get install python3-venv)" >&2; exit 1; }
	@command -v cc >/dev/null || { echo "missing: a C compiler as cc (Debian: apt-get install gcc libc6-dev)" >&2; exit 1; }
	@command -v cargo >/dev/null || { echo "missing: cargo (the Rust toolchain, 1.88 or newer)" >&2; exit 1; }
	@echo "installing the pinned Python packages into .venv"
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $@

.venv/built: .venv/installed pyproject.toml wheels/client/pyproject.toml $(RUST)
	@echo "building the extension in release mode"
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable wheels/client
	@source $(BIN)/activate && PIP_QUIET=1 PIP_DISABLE_PIP_VERSION_CHECK=1 maturin develop --quiet --release --locked
	@touch $@

# What `pip install` takes: the client, and the server for machines of this kind; for aarch64 where Rust and zig can build for it.
wheels: .venv/installed
	@$(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir $(DIST) wheels/client
	@source $(BIN)/activate && maturin build --quiet --release --locked --strip --out $(DIST)
	@test -d "$$(rustc --print sysroot)/lib/rustlib/$(ARM)" || { echo "no wheel for aarch64: Rust's standard library for it is missing (rustup target add $(ARM))"; exit 0; }; \
	$(BIN)/python -c 'import ziglang' 2>/dev/null || { echo "no wheel for aarch64: a linker for it is missing ($(BIN)/pip install ziglang)"; exit 0; }; \
	source $(BIN)/activate && maturin build --quiet --release --locked --strip --zig --target $(ARM) --out $(DIST)

demo: build
	@$(BIN)/srtm demo

lint: build
	cargo fmt --all --check
	cargo fmt --manifest-path broker/fuzz/Cargo.toml --check
	cargo clippy --quiet --locked --workspace --all-targets -- -D warnings
	for features in "" lab packet-clock; do cargo clippy --quiet --locked -p srtm-engine --all-targets --no-default-features --features "$$features" -- -D warnings || exit; done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest srtm._native --ignore-disjoint-bases

# Python keeps what it compiled: the tests start a thousand processes.
check test test-full: export PYTHONDONTWRITEBYTECODE :=

# Whatever is quick: format, lint, types, and the tests that need no other process.
check: WORKERS := 2
check: lint
	$(PYTEST) --quiet -m "not slow and not long"

test: lint
	cargo test --quiet --locked --workspace
	$(PYTEST) -m "not long"

# The long forms of what `make test` holds, too.
test-full: lint
	cargo test --quiet --locked --workspace
	cargo test --quiet --locked -p srtm-engine --no-default-features
	$(PYTEST)

# The tests that need PostgreSQL alone; `make test` runs them too where it is installed.
test-pg: build
	$(BIN)/pytest -m postgres

peers: $(PEERS) .peers/nats-server

$(PEERS) &: bench/peers/go.sum
	@command -v go >/dev/null || { echo "missing: go (the Go toolchain, to build the real nsqd)" >&2; exit 1; }
	cd bench/peers && GOBIN=$(CURDIR)/.peers go install -tags peers $(addprefix github.com/nsqio/nsq/apps/,$(notdir $(PEERS)))

.peers/nats-server: bench/peers/nats/go.sum
	@command -v go >/dev/null || { echo "missing: go (the Go toolchain, to build nats-server)" >&2; exit 1; }
	cd bench/peers/nats && GOBIN=$(CURDIR)/.peers go install -tags peers github.com/nats-io/nats-server/v2

.peers/bin/rumqttd:
	cargo install --quiet --locked --root .peers --version 0.20.0 rumqttd

# cargo knows what is new
floor:
	@cargo build --quiet --release --locked -p srtm-floor

bench-nsqd: build floor $(PEERS)
	$(BIN)/srtm bench nsqd --document

# The paper's figures, simulated; QUICK=1: a coarse version. The arrays of a run come and go: an allocator that keeps their pages takes a third less time.
figures: export MALLOC_MMAP_MAX_ := 0
figures: export MALLOC_TRIM_THRESHOLD_ := 8589934592
figures: build
	$(BIN)/srtm bench figures --document --resume $(if $(QUICK),--quick)
	$(BIN)/srtm bench table1 --virtual --document

# The simulator's parameters, from real brokers: six minutes on a quiet machine. They are sources: commit them before figures are made of them.
calibrate: build
	$(BIN)/srtm bench calibrate --document

# Figures on real brokers: an hour on a quiet machine.
figures-real: build
	$(BIN)/srtm bench figures --real --document

# Client suites and nsqadmin against our broker under nsqd's name, and against nsqd; then the answers of both to the same sessions;
# then the examples in other languages.
interop: build $(PEERS)
	$(BIN)/python -m tests.interop
	$(BIN)/python -m tests.interop.drop_in
	$(BIN)/pytest tests/test_examples.py -m long

# MQTT: Eclipse Paho's suites, clients of others, Mosquitto as a bridge, and the examples, each against our broker. PAHO_TESTING names another clone.
interop-mqtt: build
	$(BIN)/python -m tests.interop.mqtt

# SIGKILL under load two hundred times; ten minutes of bad links, stops and kills under both lease rules and GDRL; ten of
# chaos in a whole cluster; then MQTT: twenty kills, and ten minutes of links that are cut.
# `make test` has short forms.
soak: build
	$(BIN)/python -m tests.faults.crash --kills 100
	$(BIN)/python -m tests.faults.crash --kills 100 --mem-queue-size 100
	$(BIN)/python -m tests.faults.lease_soak --seconds 600
	$(BIN)/python -m tests.faults.chaos --seconds 600
	$(BIN)/python -m tests.faults.mqtt_crash --kills 20
	$(BIN)/python -m tests.faults.mqtt_links --seconds 600

# The protocols of the leases and of GDRL, exhaustively for few brokers, and runs of these models through the code.
model: build
	@docs/model/check.sh
	$(BIN)/pytest tests/model

# Invented inputs, led by coverage: FUZZ_SECONDS (60) a target, or FUZZ_RUNS inputs. What it found before is replayed by `make test`.
fuzz:
	@command -v c++ >/dev/null || { echo "missing: a C++ compiler as c++, for libFuzzer (Debian: apt-get install g++)" >&2; exit 1; }
	@broker/fuzz/fuzz.sh run

clean:
	rm -rf .interop .venv target build dist .pytest_cache .mypy_cache .ruff_cache
