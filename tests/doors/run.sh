#!/bin/sh
# Runs the suites of outside clients against `longhaul dev` on a private directory, with model.py as its model.
# The argument is the program, by default target/debug/longhaul. Exits with 1 if a suite failed.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../../target}
program=$(realpath "${1:-$target/debug/longhaul}")
work=$target/doors
mkdir -p "$work/node"
work=$(realpath "$work")
python=$work/venv/bin/python

[ -x "$python" ] || python3 -m venv "$work/venv"
"$python" -m pip install --quiet --disable-pip-version-check -r "$here/requirements.txt"
cp "$here"/package.json "$here"/*.mjs "$work/node/"
(cd "$work/node" && npm install --silent --no-audit --no-fund)

# Not below target/: the servers may run as a user that cannot read it.
data=$(mktemp -d)
chmod 755 "$data"
dev='' model=''
stop() {
    [ -z "$dev" ] || { kill "$dev" && wait "$dev"; } || true
    [ -z "$model" ] || kill "$model" || true
    rm -rf "$data"
}
trap stop EXIT
trap 'exit 1' INT TERM

"$python" "$here/model.py" > "$data/model" &
model=$!
until [ -s "$data/model" ]; do sleep 0.1; done
DOORS_STUB=$(cat "$data/model")
port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
env -u OPENAI_API_KEY -u ANTHROPIC_API_KEY LONGHAUL_LLM_URL="$DOORS_STUB" LONGHAUL_LLM_API_KEY=stub \
    LONGHAUL_LLM_MODEL=stub "$program" dev --listen "127.0.0.1:$port" --data-dir "$data/longhaul" \
    --apply "$here/agents" > "$work/dev.log" 2>&1 &
dev=$!
ready() {
    [ -f "$data/longhaul/env" ] || return 1
    . "$data/longhaul/env"
    curl -fs "$LONGHAUL_URL/v1/models" -H "Authorization: Bearer $LONGHAUL_API_KEY" | grep -q custom/stub
}
tries=0
until ready; do
    tries=$((tries + 1))
    kill -0 "$dev" 2> /dev/null && [ $tries -lt 120 ] || { tail -20 "$work/dev.log"; exit 1; }
    sleep 1
done
DOORS_OTHER_KEY=$("$program" keys create --name other --org other --json |
    "$python" -c 'import json, sys; print(json.load(sys.stdin)["key"])')
export DOORS_STUB DOORS_OTHER_KEY PYTHONDONTWRITEBYTECODE=1

failed=0
suite() {
    echo "== $*"
    "$@" || { failed=1; echo "== failed: $*"; }
}
for name in openai anthropic llm_comply hostile; do
    suite "$python" "$here/suite_$name.py"
done
for name in openai agui; do
    suite node "$work/node/suite_$name.mjs"
done
echo '== ag-ui-validate'
"$work/venv/bin/ag-ui-validate" "$LONGHAUL_URL/v1/agui/helper" --no-color --max-warnings 0 \
    --header "Authorization: Bearer $LONGHAUL_API_KEY" || failed=1
echo '== schemathesis'
cd "$work" # It keeps what it has found in the directory.
"$work/venv/bin/schemathesis" run "$LONGHAUL_URL/openapi.json" --phases fuzzing --max-examples 30 --workers 2 \
    --include-path-regex '^/v1/(responses|chat|messages|models|agui|runs)' --request-timeout 30 \
    --checks not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance \
    -H "Authorization: Bearer $LONGHAUL_API_KEY" || failed=1
exit $failed
