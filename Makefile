# Every command of a developer or of CI. `make` lists them.
#
# demo and test first make sure that PostgreSQL and Redis are installed; see deploy/bootstrap.sh. No target needs a
# running server: each starts private ones and stops them again.

.DEFAULT_GOAL := help
.PHONY: help bootstrap demo dev test doors verify lint fmt sqlx sqlx-check dist dist-clients bench docs ci

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name text; do printf '  make %-12s %s\n' "$$name" "$$text"; done

bootstrap: ## install what is missing (PostgreSQL, Redis, bubblewrap, a C compiler), or say how
	@sh deploy/bootstrap.sh

# The dev profile: a first build takes a fraction of the release one's time on two cores, `make test` uses the same
# artifacts (with `-p`, cargo would choose other features of the dependencies, and compile most of them again), and the
# demo waits for its scripted model and its database rather than for our code.
demo: bootstrap ## a durable run that is killed, three example definitions over sample input, a chat, a project and a schedule
	@cargo run --bin longhaul -- demo

dev: bootstrap ## API, worker and page on private servers; data in .longhaul/
	@cargo run --bin longhaul -- dev

# More tests than cores at a time: they wait for servers as much as they compute.
test: bootstrap ## all tests
	@sh deploy/pgvector.sh
	@sh deploy/browser.sh
	@RUST_TEST_THREADS=$$(( $$(getconf _NPROCESSORS_ONLN) * 3 / 2 )) cargo test --workspace --no-fail-fast

# The clients come from PyPI and npm, in the versions of tests/doors.
doors: bootstrap ## the suites of OpenAI's, Anthropic's and AG-UI's clients against `longhaul dev`, and of Python workers
	@cargo build --bin longhaul
	@tests/doors/run.sh

# Every fault but a promotion once, without the hostile tenant, whatever that takes, in the dev profile: the bars in
# seconds are not checked (docs/reference/verify.md).
verify: bootstrap ## kill, pause and restart a fleet in every way, and prove that nothing was lost or done twice
	@cargo run --bin longhaul -- verify --rate 5 --seed 1 --timing false --report target/verify.json \
		--with sessions,approvals,budgets,children,memory,projects,schedules,webhooks \
		--faults kill-worker,pause-worker,partition-worker,rolling-restart,kill-api,pause-api \
		--faults redis-restart,redis-flush,redis-pause,postgres-restart,postgres-pause,end-sessions \
		--faults cut-connections,lose-replies,double-wakeups,drop-wakeups,model-outage

lint: ## formatting and clippy, as CI runs them
	@cargo fmt --all --check
	@cargo clippy --workspace --all-targets -- -D warnings

fmt: ## format everything
	@cargo fmt --all

sqlx: bootstrap ## write the metadata of the compiled queries to .sqlx
	@sh deploy/sqlx.sh

sqlx-check: bootstrap ## fail when .sqlx does not match the queries and migrations
	@sh deploy/sqlx.sh --check

dist: bootstrap ## the program as it is installed, compiled for what it was seen to do: two builds
	@sh deploy/dist.sh

# Both registries are asked for the build tools; the packages themselves are generated code that is committed.
dist-clients: ## the packages of the Python and the TypeScript client, in target/clients
	@clients/dist.sh

BENCH = cargo run --profile dist -p longhaul-cli --features bench --bin longhaul -- bench
bench: bootstrap ## latency, throughput and memory, beside the floor of this machine's PostgreSQL
	@$(BENCH) latency
	@$(BENCH) latency --rate half
	@$(BENCH) throughput
	@$(BENCH) throughput --rounds 5 --executions 10000
	@$(BENCH) in-flight --delay-ms 1000 --waves 10
	@$(BENCH) parked
	@$(BENCH) recovery
	@$(BENCH) wire

docs: ## API documentation of the crates in target/doc
	@RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --document-private-items

ci: ## everything that a change must pass
	@.ci/run
