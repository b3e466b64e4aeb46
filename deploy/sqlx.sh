#!/bin/sh
# Writes .sqlx, the metadata against which sqlx checks the queries when no database is at hand. With --check it only
# compares, and fails when the two differ.
#
# It cannot use our own program for the server: that does not compile while the metadata is stale, which is just when
# this is needed. So it starts a PostgreSQL by hand: on a socket in a directory that is closed to others, no port, no
# password, and nothing kept.
set -eu

cd "$(dirname "$0")/.."
repo=$PWD
case ${1:-} in
'' | --check) ;;
*)
    echo "usage: sh $0 [--check]" >&2
    exit 2
    ;;
esac

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

scratch=$(mktemp -d "${TMPDIR:-/tmp}/longhaul-sqlx.XXXXXX")
fresh=$scratch/queries
stop() {
    $as_server "$bin/pg_ctl" -D "$scratch/server/data" -m immediate stop >/dev/null 2>&1 || :
    rm -rf "$scratch"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

mkdir "$scratch/server" "$fresh"
chmod 711 "$scratch"
chmod 700 "$scratch/server"
if [ -n "$as_server" ]; then chown "$(${as_server} id -u):$(${as_server} id -g)" "$scratch/server"; fi
cd "$scratch/server" 2>/dev/null || cd /
$as_server "$bin/initdb" -D "$scratch/server/data" -U longhaul -E UTF8 --locale=C --auth=trust --no-sync >/dev/null
# fsync=off: this database is thrown away in a minute.
$as_server "$bin/pg_ctl" -D "$scratch/server/data" -w -l "$scratch/server/log" \
    -o "-c listen_addresses= -c unix_socket_directories=$scratch/server -c fsync=off" start >/dev/null
cd "$repo"
# The order of functions is the program's to know (crates/store/build.rs): here their bodies are not checked against
# each other.
export PGOPTIONS='-c check_function_bodies=off'
for migration in migrations/*.sql migrations/functions/*.sql; do
    "$bin/psql" -h "$scratch/server" -U longhaul -d postgres -q -X -1 -v ON_ERROR_STOP=1 -f "$migration" >/dev/null
done

# The macros run when the crate is compiled, and only then.
touch crates/store/src/lib.rs
SQLX_OFFLINE=false SQLX_OFFLINE_DIR=$fresh DATABASE_URL="postgres://longhaul@localhost/postgres?host=$scratch/server" \
    cargo check -q -p longhaul-store --all-targets
# Whatever is built next shall see the committed metadata again.
touch crates/store/src/lib.rs

if [ "${1:-}" = --check ]; then
    mkdir -p .sqlx
    if ! diff -r .sqlx "$fresh" >&2; then
        echo '.sqlx does not match the queries and migrations: run make sqlx' >&2
        exit 1
    fi
    echo '.sqlx is up to date'
else
    rm -rf .sqlx
    mkdir .sqlx
    find "$fresh" -name '*.json' -exec cp {} .sqlx/ \;
    echo ".sqlx holds $(find .sqlx -name '*.json' | wc -l) queries"
fi
