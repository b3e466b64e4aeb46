#!/bin/sh
# Runs the suites of outside clients against `longhaul dev` on a private directory, with model.py as its model, and the
# suites of Python workers, which start installations of their own.
#
#     run.sh [PROGRAM [SUITE…]]
#
# PROGRAM is by default target/debug/longhaul; without a SUITE all run. Exits with 1 if a suite failed.
set -eu

client_suites='openai anthropic llm_comply hostile openai-node agui ag-ui-validate schemathesis'
worker_suites='python-faults celery-beside'

here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../../target}
program=$(realpath "${1:-$target/debug/longhaul}")
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- $client_suites $worker_suites
wanted=" $* "
for name in "$@"; do
    case " $client_suites $worker_suites " in
    *" $name "*) ;;
    *) echo "there is no suite $name: $client_suites $worker_suites" >&2 && exit 2 ;;
    esac
done
is_wanted() {
    case $wanted in *" $1 "*) return 0 ;; *) return 1 ;; esac
}
is_any_wanted() {
    for name in "$@"; do
        ! is_wanted "$name" || return 0
    done
    return 1
}
work=$target/doors
mkdir -p "$work/node"
work=$(realpath "$work")
python=$work/venv/bin/python

[ -x "$python" ] || python3 -m venv "$work/venv"
"$python" -m pip install --quiet --disable-pip-version-check -r "$here/requirements.txt" \
    "$(realpath "$here/../../clients/python")[worker]"
if is_any_wanted openai-node agui; then
    cp "$here"/package.json "$here"/*.mjs "$work/node/"
    (cd "$work/node" && npm install --silent --no-audit --no-fund)
fi
export PYTHONDONTWRITEBYTECODE=1

failed=0
suite() {
    name=$1
    shift
    is_wanted "$name" || return 0
    echo "== $name"
    "$@" || { failed=1; echo "== failed: $name"; }
}
# Before `longhaul dev`, which would take processors from them. The ten faults, each once, take some 70 s.
suite python-faults "$python" "$here/faults_python.py" "$program" --duration 90 --rate 8
suite celery-beside "$python" "$here/celery_beside.py" "$program" --tasks 500
# shellcheck disable=SC2086
is_any_wanted $client_suites || exit $failed

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
export DOORS_STUB DOORS_OTHER_KEY

suite openai "$python" "$here/suite_openai.py"
suite anthropic "$python" "$here/suite_anthropic.py"
suite llm_comply "$python" "$here/suite_llm_comply.py"
suite hostile "$python" "$here/suite_hostile.py"
suite openai-node node "$work/node/suite_openai.mjs"
suite agui node "$work/node/suite_agui.mjs"
suite ag-ui-validate "$work/venv/bin/ag-ui-validate" "$LONGHAUL_URL/v1/agui/helper" --no-color --max-warnings 0 \
    --header "Authorization: Bearer $LONGHAUL_API_KEY"
# It keeps in the directory what it has found. A drain would stop the worker of the installation.
cd "$work"
suite schemathesis "$work/venv/bin/schemathesis" run "$LONGHAUL_URL/openapi.json" --phases fuzzing --max-examples 30 \
    --workers 2 --request-timeout 30 \
    --include-path-regex '^/v1/(responses|chat|messages|models|agui|runs|workers|executions/[^/]+/signals)' \
    --exclude-path-regex '/drain$' \
    --checks not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance \
    -H "Authorization: Bearer $LONGHAUL_API_KEY"
exit $failed
