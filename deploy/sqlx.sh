#!/bin/sh
# Writes .sqlx, the metadata against which sqlx checks the queries when no database is at hand. With --check it only
# compares, and fails when the two differ.
set -eu

cd "$(dirname "$0")/.."
case ${1:-} in
'' | --check) ;;
*)
    echo "usage: sh $0 [--check]" >&2
    exit 2
    ;;
esac
. deploy/scratch-postgres.sh
fresh=$scratch/queries
mkdir "$fresh"

# The macros run when the crate is compiled, and only then.
touch crates/store/src/lib.rs
SQLX_OFFLINE=false SQLX_OFFLINE_DIR=$fresh DATABASE_URL="postgres://longhaul@localhost/postgres?host=$socket" \
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
