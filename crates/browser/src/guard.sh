# The process between a worker and its browser; run as `/bin/sh -c`. When the worker closes its pipe, or dies, it kills
# every process of the browser, and then removes the browser's directory.
#
#   $1 the browser's directory, which holds the file `log`   $2 user id of the browser, or "" for that of the worker
#   $3 limit of the data of each process, in KiB             the rest is the browser's command
#   standard input and output are the browser's DevTools pipes; standard error is the read end of the worker's pipe
dir=$1 user=$2 data=$3
shift 3
exec 3<&0 4>&1 5<&2 </dev/null >/dev/null 2>&1
trap '' HUP INT TERM

# A page can make the browser write any number of messages: the first 4 KiB are kept.
mkfifo -m 600 "$dir/messages"
{ head -c 4096 >"$dir/log"; cat; } <"$dir/messages" >/dev/null 3<&- 4>&- 5<&- &

if [ -n "$user" ]; then
    set -- setpriv --reuid="$user" --regid="$user" --clear-groups --no-new-privs "$@"
fi
# All processes of the browser are in the session that this begins.
(
    ulimit -c 0
    ulimit -d "$data"
    exec setsid "$@" 5<&- 2>"$dir/messages"
) &
session=$!
exec 3<&- 4>&-

(
    # Nothing is ever written: read returns when the worker closes its end or dies.
    while read -r _ <&5; do :; done
    kill -s KILL -- "-$session"
) &
watcher=$!
exec 5<&-

wait "$session"
kill -s KILL "$watcher"

# Children that outlive the first process, also in process groups of their own.
tries=0
while [ "$tries" -lt 200 ]; do
    left=
    for stat in /proc/[0-9]*/stat; do
        read -r line <"$stat" || continue
        # The name, in parentheses, may hold anything. After it: state, parent, group, session.
        # shellcheck disable=SC2086 # fields
        set -- ${line##*) }
        if [ "$4" = "$session" ] && [ "$1" != Z ] && [ "$1" != X ]; then
            kill -s KILL "${line%% *}"
            left=yes
        fi
    done
    [ -n "$left" ] || break
    sleep 0.05
    tries=$((tries + 1))
done
cd /
rm -rf -- "$dir"
