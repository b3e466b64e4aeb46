# A PostgreSQL with the schema of the repository, for the scripts that source this: on a socket in a directory that is
# closed to others, no port, no password, nothing kept. Sets `bin`, `scratch` and `socket`; stops and deletes the server
# when the script exits.
#
# It cannot be our own program's server: that does not compile while the metadata of its queries is stale.

# Newest first.
bin=
# shellcheck disable=SC2012 # the names are numbers
for version in $(ls /usr/lib/postgresql 2>/dev/null | sort -rn); do
    if [ -x "/usr/lib/postgresql/$version/bin/initdb" ]; then
        bin=/usr/lib/postgresql/$version/bin
        break
    fi
done
[ -n "$bin" ] || bin=$(dirname "$(readlink -f "$(command -v postgres)")")

as_server=
if [ "$(id -u)" -eq 0 ]; then
    # PostgreSQL refuses to run as root.
    as_server='runuser -u postgres --'
    id postgres >/dev/null 2>&1 || as_server='runuser -u nobody --'
fi

repo=$PWD
scratch=$(mktemp -d "${TMPDIR:-/tmp}/longhaul-scratch.XXXXXX")
socket=$scratch/server
stop() {
    $as_server "$bin/pg_ctl" -D "$socket/data" -m immediate stop >/dev/null 2>&1 || :
    rm -rf "$scratch"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

mkdir "$socket"
chmod 711 "$scratch"
chmod 700 "$socket"
if [ -n "$as_server" ]; then chown "$(${as_server} id -u):$(${as_server} id -g)" "$socket"; fi
cd "$socket" 2>/dev/null || cd /
$as_server "$bin/initdb" -D "$socket/data" -U longhaul -E UTF8 --locale=C --auth=trust --no-sync >/dev/null
# fsync=off: this database is thrown away.
$as_server "$bin/pg_ctl" -D "$socket/data" -w -l "$socket/log" \
    -o "-c listen_addresses= -c unix_socket_directories=$socket -c fsync=off" start >/dev/null
cd "$repo"
# The order of functions is the program's to know (crates/store/build.rs): here their bodies are not checked against
# each other.
for migration in migrations/*.sql migrations/functions/*.sql; do
    PGOPTIONS='-c check_function_bodies=off -c client_min_messages=warning' "$bin/psql" -h "$socket" -U longhaul \
        -d postgres -q -X -1 -v ON_ERROR_STOP=1 -f "$migration" >/dev/null
done
