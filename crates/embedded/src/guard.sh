# The process between Longhaul and a server it started; run as `/bin/sh -c`. It must outlive a `kill -9` of its
# owner by just long enough to stop the server, so it waits for nothing but the end of the owner's pipe.
#
#   $1 log file   $2 signal that asks the server to stop   $3 directory to remove when the owner is gone, or ""
#   the rest is the server's command; standard input is the owner's pipe; standard output gets the server's pid
log=$1 signal=$2 scratch=$3
shift 3

# When the owner of a paused server dies, the system sends HUP to the whole group (it is orphaned and has a stopped
# member). The guard has to survive that; the servers install handlers of their own.
trap '' HUP

# A background command of sh reads /dev/null, so the pipe needs another number.
exec 3<&0 </dev/null
"$@" >>"$log" 2>&1 3<&- &
server=$!
echo "$server"

(
    # Nothing is ever written: read returns when the owner closes the pipe or dies.
    while read -r _ <&3; do :; done
    # The exit status tells the main part below that the owner is gone and the directory may go.
    trap 'exit 9' TERM
    # A paused server hears no signal, and a paused child would outlive it.
    children=$(cat "/proc/$server/task/$server/children" 2>/dev/null || pgrep -P "$server")
    # shellcheck disable=SC2086 # a list of pids
    kill -s CONT "$server" $children
    kill -s "$signal" "$server"
    tries=0
    while kill -s 0 "$server" && [ "$tries" -lt 100 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    # shellcheck disable=SC2086
    kill -s KILL "$server" $children
    # Wait for the TERM that ends this subshell.
    while :; do sleep 0.1; done
) >/dev/null 2>&1 &
watcher=$!

wait "$server"
code=$?
kill -s TERM "$watcher" 2>/dev/null
wait "$watcher" 2>/dev/null
if [ "$?" -eq 9 ] && [ -n "$scratch" ]; then
    cd /
    rm -rf -- "$scratch"
fi
exit "$code"
