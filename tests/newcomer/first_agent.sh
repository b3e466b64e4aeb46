#!/bin/sh
# A newcomer's first minute, timed: from the program and Debian's packages to a FINISHED execution of an agent of one's
# own, within LIMIT_SECONDS. It starts in an empty home, with nothing set but PATH.
#
#   sh tests/newcomer/first_agent.sh PROGRAM          here
#   sh tests/newcomer/first_agent.sh PROGRAM ROOT     in a fresh Debian below ROOT, as root. Made with
#       debootstrap --variant=minbase --include=postgresql,redis-server trixie ROOT
set -eu

limit=${LIMIT_SECONDS:-60}
program=${1:?"usage: $0 PROGRAM [ROOT]"}
root=${2:-}
path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

if [ -n "$root" ]; then
    install -D "$program" "$root/usr/local/bin/longhaul"
    install -D "$0" "$root/usr/local/share/longhaul/first_agent.sh"
    mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
    exec env -i PATH="$path" HOME=/root LIMIT_SECONDS="$limit" \
        chroot "$root" sh /usr/local/share/longhaul/first_agent.sh /usr/local/bin/longhaul
fi
if [ -z "${LONGHAUL_NEWCOMER:-}" ]; then
    home=$(mktemp -d)
    # What else is in the environment is not the newcomer's.
    exec env -i PATH="$path" HOME="$home" LIMIT_SECONDS="$limit" LONGHAUL_NEWCOMER=1 sh "$0" "$program"
fi

cd "$HOME"
server=
finish() {
    status=$?
    trap - EXIT
    if [ -n "$server" ]; then
        kill -TERM "$server" 2>/dev/null || :
        wait "$server" || :
    fi
    [ "$status" -eq 0 ] || sed 's/^/dev: /' dev.log >&2 || :
    # Where root keeps data that the servers cannot reach below its home.
    for link in .longhaul/*; do
        if [ -L "$link" ]; then rm -rf "$(readlink "$link")"; fi
    done
    cd / && rm -rf "$HOME"
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

seconds() { cut -d ' ' -f 1 /proc/uptime; }
since() { awk -v now="$(seconds)" -v then="$1" 'BEGIN { printf "%.1f", now - then }'; }

began=$(seconds)
mkdir agents
cat >agents/greeter.yaml <<'YAML'
key: greeter
name: Greeter
prompts:
  conversation: You greet people by their names.
model:
  script: |
    {{ text("Hello " ~ input_text | regex_find("I am (\\w+)") ~ "!") }}
limits:
  max_turns: 3
YAML
[ "$(wc -l <agents/greeter.yaml)" -le 10 ] || { echo "the agent has more than ten lines" >&2; exit 1; }

"$program" dev --listen 127.0.0.1:0 >dev.log 2>&1 &
server=$!
# Written once address and key are known; the API listens by then.
until [ -s .longhaul/env ]; do
    kill -0 "$server" 2>/dev/null || { echo "longhaul dev ended" >&2; exit 1; }
    [ "$(since "$began" | cut -d . -f 1)" -lt "$limit" ] || { echo "longhaul dev did not start" >&2; exit 1; }
    sleep 0.1
done
started=$(since "$began")
"$program" submit --agent greeter --input '{"prompt": "I am Ada."}' --wait --json >execution.json
finished=$(since "$began")

grep -q '"status": *"FINISHED"' execution.json || { cat execution.json >&2; exit 1; }
grep -q 'Hello Ada!' execution.json || { cat execution.json >&2; exit 1; }
echo "longhaul dev was there after $started s, the first execution FINISHED after $finished s"
awk -v took="$finished" -v limit="$limit" 'BEGIN { exit !(took <= limit) }' ||
    { echo "that is more than $limit s" >&2; exit 1; }
