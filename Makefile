# The few commands that a person needs. `make` alone lists them.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
# Stages share target/ and two cores; one after the other, their output stays readable.
.NOTPARALLEL:

PYTHON := python3
STAGE := scripts/stage
BUF := .venv/bin/buf
CARGO := cargo
# A PostgreSQL server of the tests' own, for as long as the command runs.
WITH_POSTGRES := scripts/postgres during
TYPESCRIPT := sdk/typescript
# Warnings are errors in the checks; while one works they are warnings. (RUSTFLAGS would rebuild every dependency.)
CLIPPY := $(CARGO) clippy --locked --quiet --all-targets -- --deny warnings

.PHONY: help
help: ## Lists the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- Running ----------------------------------------------------------------------------------------------------------

.PHONY: quickstart
quickstart: ## Builds everything and runs the order example once, step by step
	@PYTHON=$(PYTHON) scripts/quickstart

.PHONY: dev
dev: ## The same, and leaves server and worker running until Ctrl-C
	@PYTHON=$(PYTHON) scripts/quickstart --stay

.PHONY: bench
bench: ## Measures a release build on SQLite and PostgreSQL, into docs/measurements/ (BENCH=--quick for a try)
	scripts/postgres install
	$(CARGO) build --locked --release --bin orbit
	$(PYTHON) scripts/bench.py $(BENCH)

# Counts, not times: the same on a busy machine. Needs valgrind.
.PHONY: check-instructions record-instructions
check-instructions: ## Fails if a part of a step takes over 10 % more instructions than benches/instructions.txt says
	$(PYTHON) scripts/instructions.py
record-instructions:
	$(PYTHON) scripts/instructions.py --record

# --- Checks and tests -------------------------------------------------------------------------------------------------

.PHONY: test
test: ## Every check and every test, installing what they need
	@$(STAGE) --begin
	@$(MAKE) --no-print-directory lint test-rust test-python test-typescript test-go test-sdk test-task-types test-cases smoke
	@$(STAGE) --end

.PHONY: check
check: ## Format, lints, unit and domain tests: under five minutes when warm
	@$(STAGE) --begin
	@$(MAKE) --no-print-directory lint test-unit test-python
	@$(STAGE) --end

.PHONY: lint
lint: .venv/stamp .venv-generate/stamp .tools/stamp $(TYPESCRIPT)/node_modules/.stamp
	@$(STAGE) format-rust $(CARGO) fmt --check
	@$(MAKE) --no-print-directory lint-protos lint-python lint-typescript lint-go
	@$(STAGE) generated-code .venv-generate/bin/python scripts/generate.py --check
	@$(STAGE) crates $(PYTHON) scripts/check_crates.py
	@$(STAGE) clippy $(CLIPPY)
	@RUSTDOCFLAGS='--deny warnings' $(STAGE) rustdoc $(CARGO) doc --locked --quiet --no-deps --document-private-items

.PHONY: lint-protos
lint-protos: .venv/stamp ## Format, lint and compatibility of the protos
	@$(STAGE) format-protos $(BUF) format proto --path proto/orbit --diff --exit-code
	@$(STAGE) buf-lint $(BUF) lint proto
	@$(STAGE) buf-breaking $(BUF) breaking proto --against proto/image.binpb

.PHONY: lint-python
lint-python: .venv/stamp
	@$(STAGE) format-python .venv/bin/ruff format --quiet --check .
	@$(STAGE) ruff .venv/bin/ruff check --quiet .
	@$(STAGE) mypy .venv/bin/mypy scripts/*.py examples/order/*.py examples/order/tests/*.py
	@$(MAKE) --no-print-directory lint-sdk-python
	@$(MAKE) --no-print-directory lint-sdk-suite

.PHONY: test-unit
test-unit:
	@$(STAGE) unit-tests $(CARGO) test --locked --quiet --lib --test tidy

.PHONY: test-rust
test-rust: .venv/stamp
	@$(STAGE) install-postgres scripts/postgres install
	@$(STAGE) rust-tests $(WITH_POSTGRES) scripts/tee target/rust-tests.txt $(CARGO) test --locked

.PHONY: test-postgres
test-postgres: export PG_MAJOR ?= 18
test-postgres: ## The store's tests on another PostgreSQL, installed into target/ (PG_MAJOR=18)
	$(WITH_POSTGRES) $(CARGO) test --locked --test store

.PHONY: record-simulation
record-simulation: ## Simulates until every combination was met often enough, and writes tests/simulation/coverage.txt
	RECORD=1 $(CARGO) test --locked --test simulation -- everything_ends --nocapture

# Twice: with the newest runtime and with the oldest that the stubs allow.
.PHONY: test-python
test-python: .venv/stamp .venv-generate/stamp
	@$(STAGE) python-tests .venv/bin/pytest -q examples/order
	@$(STAGE) python-tests-oldest .venv-generate/bin/pytest -q examples/order
	@$(MAKE) --no-print-directory test-sdk-python

# The real program, worker and example, with the binary that the tests have built.
.PHONY: smoke
smoke:
	@$(STAGE) quickstart env PYTHON=$(PYTHON) scripts/quickstart

.PHONY: cases
cases: ## Field cases: which test covers which, and its result in the last `make test`
	@$(PYTHON) scripts/cases.py $(CASE_RESULTS)

.PHONY: test-cases
test-cases:
	@$(STAGE) field-cases $(PYTHON) scripts/cases.py $(CASE_RESULTS)

CASE_RESULTS := target/rust-tests.txt target/sdk-scenarios.txt

# The long forms of the fault tests, with the program of `make test`; numbers as below, or as given.
RECORD := $(CARGO) test --locked --test recovery -- --nocapture --exact

.PHONY: record-kills record-worker-faults record-power record-restart
record-kills: export KILLS ?= 200
record-kills: ## Kills a server under load, KILLS=200 times, and judges what its callers were told
	$(RECORD) kills::nothing_accepted_is_lost_or_repeated_when_the_server_is_killed_again_and_again
record-worker-faults: export WORKER_FAULTS ?= 60
record-worker-faults:
	$(RECORD) worker_faults::nothing_is_lost_or_repeated_when_workers_are_killed_and_stopped_in_their_tasks
record-power: export POWER_LOSSES ?= 50
record-power:
	$(RECORD) power::nothing_accepted_is_lost_when_the_power_fails
record-restart: export OPEN_EXECUTIONS ?= 20000
record-restart:
	$(RECORD) restart::the_first_request_is_served_within_a_second_however_many_executions_are_open

.PHONY: record-chaos record-faults
record-chaos: export CHAOS_SECONDS ?= 900
record-chaos: export RECORD_COMMAND = make record-chaos CHAOS_SECONDS=$(CHAOS_SECONDS)
record-chaos: ## Three nodes and all that can happen to them, CHAOS_SECONDS=900, into docs/measurements/
	@scripts/record chaos "Chaos on three nodes" $(RECORD) cluster::chaos::$(CHAOS)
record-faults: export FAULT_TRIES ?= 30
record-faults: export RECORD_COMMAND = make record-faults FAULT_TRIES=$(FAULT_TRIES)
record-faults: ## Each fault of nodes and database, FAULT_TRIES=30 times, into docs/measurements/
	@scripts/record faults "Faults of nodes and of their database" $(RECORD) cluster::faults::$(FAULTS)

CHAOS := nothing_accepted_is_lost_or_repeated_whatever_happens_to_nodes_workers_connections_and_the_database
FAULTS := everything_goes_on_within_five_seconds_of_each_fault_of_a_node_or_of_the_database

# --- SDK: the one suite for all languages -----------------------------------------------------------------------------

# With the binary that the tests have built, or the one that ORBIT_BINARY names. Drivers build themselves.
.PHONY: lint-sdk-suite test-sdk test-sdk-runner document-sdks
lint-sdk-suite: .venv/stamp
	@$(STAGE) mypy-sdk-suite .venv/bin/mypy tests/sdk/runner tests/sdk/selftest/*.py tests/task_types

test-sdk: test-sdk-runner ## Every scenario with every SDK, on a real and on a fake server: the matrix (SDK="--language go")
	@$(STAGE) sdk-scenarios $(RUN_SDK) --results target/sdk-scenarios.txt $(SDK)

test-sdk-runner: .venv/stamp
	@$(STAGE) sdk-runner .venv/bin/pytest -q tests/sdk/selftest

# What `orbit generate task-types` writes, with the compilers of its languages.
.PHONY: test-task-types
test-task-types: .venv/stamp
	@$(STAGE) task-types .venv/bin/pytest -q tests/task_types

document-sdks: .venv/stamp ## The same, and writes the matrix into docs/sdks.md
	$(RUN_SDK) --markdown docs/sdks.md

RUN_SDK := env PYTHONPATH=tests/sdk .venv/bin/python -m runner
SDK ?=

.PHONY: record-sdk-outage
record-sdk-outage: export RECORD_COMMAND = make record-sdk-outage RESTARTS=$(RESTARTS) OUTAGE_SECONDS=$(OUTAGE_SECONDS)
record-sdk-outage: .venv/stamp ## Workers of all languages, RESTARTS=50 of their server, OUTAGE_SECONDS=300 without it
	@scripts/record sdk-outage "Workers of all languages and a server that goes away" env PYTHONPATH=tests/sdk \
	  .venv/bin/python -m runner.outage --restarts $(RESTARTS) --outage $(OUTAGE_SECONDS)

RESTARTS ?= 50
OUTAGE_SECONDS ?= 300

# --- SDK: Python ------------------------------------------------------------------------------------------------------

# Two type checkers, since users have either; and the wheel, as a user would install it.
.PHONY: lint-sdk-python
lint-sdk-python: .venv/stamp
	@$(STAGE) mypy-sdk-python .venv/bin/mypy sdk/python/src/orbit sdk/python/tests/*.py tests/sdk/drivers/python/*.py tests/sdk/bench/python/*.py
	@$(STAGE) pyright .venv/bin/pyright --warnings
	@$(STAGE) wheel-python scripts/check-wheel

# Twice, as the worker's tests. What needs a server takes target/debug/orbit, or ORBIT_BINARY, and is skipped without.
.PHONY: test-sdk-python
test-sdk-python: .venv/stamp .venv-generate/stamp ## Tests of the Python SDK, with the newest and the oldest runtime
	@$(STAGE) python-sdk-tests .venv/bin/pytest -q sdk/python/tests
	@$(STAGE) python-sdk-tests-oldest .venv-generate/bin/pytest -q sdk/python/tests

# --- SDK: Go ----------------------------------------------------------------------------------------------------------

# Modules of their own, so that the SDK's users get none of the others' dependencies.
GO_MODULES := sdk/go sdk/go/orbitotel examples/order/go tests/sdk/drivers/go

.PHONY: lint-go
lint-go: .tools/stamp
	@$(STAGE) format-go scripts/each-go '$(GO_MODULES)' bash -c 'test -z "$$(gofmt -l . | tee /dev/stderr)"'
	@$(STAGE) go-vet scripts/each-go '$(GO_MODULES)' go vet ./...
	@$(STAGE) staticcheck scripts/each-go '$(GO_MODULES)' $(CURDIR)/.tools/bin/staticcheck -checks all,-ST1000 ./...

.PHONY: test-go
test-go: ## Tests of the Go SDK, with the race detector; against target/debug/orbit, or ORBIT_BINARY
	@$(STAGE) go-tests env ORBIT_BINARY=$${ORBIT_BINARY:-$(CURDIR)/target/debug/orbit} scripts/each-go '$(GO_MODULES)' go test -race ./...

# --- SDK: TypeScript --------------------------------------------------------------------------------------------------

NPM_RUN := npm run --silent --prefix $(TYPESCRIPT)

# `tsc` strict, eslint, then what a user's tools would say of the packages.
.PHONY: lint-typescript
lint-typescript: $(TYPESCRIPT)/node_modules/.stamp
	@$(STAGE) build-typescript $(NPM_RUN) build
	@$(STAGE) eslint $(NPM_RUN) lint
	@$(STAGE) packages-typescript $(NPM_RUN) lint-packages

# Against the binary that the tests have built, or the one that ORBIT_BINARY names.
.PHONY: test-typescript
test-typescript: $(TYPESCRIPT)/node_modules/.stamp
	@$(STAGE) typescript-tests env ORBIT_BINARY=$${ORBIT_BINARY:-$(CURDIR)/target/debug/orbit} $(NPM_RUN) test

# Exactly what the lock file says.
$(TYPESCRIPT)/node_modules/.stamp: $(TYPESCRIPT)/package-lock.json
	@$(STAGE) install-typescript npm ci --silent --prefix $(TYPESCRIPT)
	@touch $@

# The rules alone, as a crate of its own in target/: it builds in seconds.
.PHONY: record-property record-mutations record-mutants
record-property: export CASES ?= 100000
record-property: export RECORD_COMMAND = make record-property CASES=$(CASES)
record-property: export RECORD_BUILD = an optimised build of the rules with all assertions
record-property: ## Families of executions under random commands and faults, CASES=100000, into docs/measurements/
	$(PYTHON) scripts/domain_crate.py target/domain-crate
	@scripts/record property "Random histories of the rules" $(CARGO) test --manifest-path target/domain-crate/Cargo.toml \
		--quiet --release --lib decide::tests::property::every_history -- --nocapture
record-mutations: export RECORD_COMMAND = make record-mutations
record-mutations: export RECORD_BUILD = a build of the rules alone
record-mutations: ## Breaks the rules on purpose, and says which property notices, into docs/measurements/
	@scripts/record mutations "Rules broken on purpose" $(PYTHON) scripts/mutations.py

# A change after which a test never ends is noticed, too: 3 says that there are such and none that nothing notices.
record-mutants: export CASES ?= 60
record-mutants: export RECORD_COMMAND = make record-mutants MUTANTS="$(MUTANTS)"
record-mutants: export RECORD_BUILD = a build of the rules alone
record-mutants: ## Has cargo-mutants change each rule of domain/decide (MUTANTS="--shard 0/6 …": every sixth), and says which change no test notices
	$(PYTHON) scripts/domain_crate.py target/mutants
	cd target/mutants && $(CARGO) test --quiet --lib --no-run
	@scripts/record mutants "Changes of domain/decide that tests notice" bash -c "$(CARGO) mutants --dir target/mutants --in-place \
		--baseline skip --timeout 120 --colors never --caught $(MUTANTS) --file 'src/domain/decide/*.rs' -- --lib domain::decide \
		|| test \$$? = 3"

# --- Generated code ---------------------------------------------------------------------------------------------------

.PHONY: generate
generate: .venv/stamp .venv-generate/stamp .tools/stamp $(TYPESCRIPT)/node_modules/.stamp ## Makes the committed stubs in sdk/ anew from proto/
	@$(STAGE) generate .venv-generate/bin/python scripts/generate.py

.PHONY: proto-image
proto-image: .venv/stamp ## Accepts the protos as they are as the base of `buf breaking`; say why in the commit
	$(BUF) build proto --exclude-source-info --output proto/image.binpb

# --- What the commands above install, in folders of their own ---------------------------------------------------------

# One virtual environment for tools, tests and the worker, with the newest runtime; one that generates, with the oldest.
.venv/stamp: scripts/requirements.txt sdk/python/gen/pyproject.toml sdk/python/pyproject.toml
.venv-generate/stamp: scripts/requirements-generate.txt sdk/python/gen/pyproject.toml sdk/python/pyproject.toml
.venv/stamp .venv-generate/stamp:
	@$(STAGE) install-$(@D) scripts/make-venv $(@D) $(PYTHON) $<

# Go programs that generate and check code; go.mod and go.sum pin them with everything that they are made of.
.tools/stamp: scripts/tools/go.mod scripts/tools/go.sum
	@$(STAGE) install-tools env GOBIN=$(CURDIR)/.tools/bin go -C scripts/tools install tool
	@touch $@
