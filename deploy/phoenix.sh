#!/bin/sh
# Runs the test of traces with Arize Phoenix as their receiver, which others wrote: an API and workers that are
# processes export to it, and the spans are read back over its API. Phoenix comes from PyPI into target/phoenix, 0.9 GB.
# It takes too long and too much for CI, which runs the same test with a receiver of its own.
#
# "skipped: …" if Phoenix cannot be had.
set -eu

cd "$(dirname "$0")/.."
home=$PWD/target/phoenix
port=${LONGHAUL_PHOENIX_PORT:-16006}
phoenix=arize-phoenix==20.26.1

if [ ! -x "$home/venv/bin/phoenix" ]; then
    mkdir -p "$home"
    python3 -m venv "$home/venv" && "$home/venv/bin/pip" --quiet --disable-pip-version-check install "$phoenix" || {
        echo "skipped: pip cannot install $phoenix"
        exit 0
    }
fi

data=$(mktemp -d)
PHOENIX_WORKING_DIR=$data PHOENIX_HOST=127.0.0.1 PHOENIX_PORT=$port PHOENIX_GRPC_PORT=$((port + 1)) \
    PHOENIX_TELEMETRY_ENABLED=false "$home/venv/bin/phoenix" serve >"$home/log" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null; rm -rf "$data"' EXIT INT TERM

waited=0
until curl --silent --fail --max-time 2 --output /dev/null "http://127.0.0.1:$port/healthz"; do
    waited=$((waited + 1))
    if [ "$waited" -gt 120 ] || ! kill -0 "$server" 2>/dev/null; then
        echo "Phoenix does not start; see $home/log" >&2
        exit 1
    fi
    sleep 1
done

LONGHAUL_TEST_PHOENIX="http://127.0.0.1:$port" \
    cargo test -p longhaul-tests --test it -- --exact --nocapture \
    worker::trace_trees::executions_are_one_tree_over_kill_park_and_children
