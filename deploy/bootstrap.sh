#!/bin/sh
# Makes sure that this machine has what `make demo` and `make test` need: cargo, a C compiler, the binaries of
# PostgreSQL 15 or newer, redis-server, and on Linux python3 and bubblewrap for the sandbox, and pgbouncer for the
# tests. Silent and quick when it has.
#
# As root, or with sudo that asks for no password, on Debian or Ubuntu, what is missing is announced and installed by
# apt-get. No system service is started, no database cluster is made, and no service is left enabled: Longhaul starts
# private servers from the binaries. Everybody else gets the exact command; then nothing is changed and the exit
# status is 3.
set -eu

POLICY=/usr/sbin/policy-rc.d
POLICY_SAVED=/usr/sbin/policy-rc.d.before-longhaul
POLICY_MARK='longhaul bootstrap: temporary'
CLUSTER_DIR=/etc/postgresql-common/createcluster.d
CLUSTER_CONF=$CLUSTER_DIR/longhaul-bootstrap.conf

say() { printf '%s\n' "$*" >&2; }

# A directory counts only with initdb, pg_ctl and a postgres of version 15 or newer side by side.
postgres_here() {
    [ -x "$1/initdb" ] && [ -x "$1/pg_ctl" ] && [ -x "$1/postgres" ] || return 1
    major=$("$1/postgres" --version 2>/dev/null | sed -n 's/^postgres (PostgreSQL) \([0-9]*\).*/\1/p')
    [ "${major:-0}" -ge 15 ]
}

have_postgres() {
    for bin in /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /opt/homebrew/opt/postgresql@*/bin /usr/local/opt/postgresql@*/bin; do
        if postgres_here "$bin"; then return 0; fi
    done
    found=$(command -v postgres) || return 1
    postgres_here "$(dirname "$(readlink -f "$found")")"
}

have_redis() { command -v redis-server >/dev/null || [ -x /opt/homebrew/bin/redis-server ]; }

# `longhaul sandbox` and its tests; Linux only.
have_python() { [ -x /usr/bin/python3 ]; }

have_bubblewrap() { command -v bwrap >/dev/null; }

# What a pooler does to Longhaul is tested with this one; Linux only.
have_pgbouncer() { command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ]; }

have_compiler() { command -v cc >/dev/null; }

is_debian() { [ -e /etc/debian_version ] && command -v apt-get >/dev/null; }

# Puts back what was there before the installation. Also run at its start, for one that was cut short by a power loss.
restore() {
    if [ -e "$POLICY" ] && grep -q "$POLICY_MARK" "$POLICY"; then rm -f "$POLICY"; fi
    if [ -e "$POLICY_SAVED" ] || [ -L "$POLICY_SAVED" ]; then mv -f "$POLICY_SAVED" "$POLICY"; fi
    rm -f "$CLUSTER_CONF"
    if [ -n "${made_cluster_dir:-}" ]; then rmdir --ignore-fail-on-non-empty "$CLUSTER_DIR" "${CLUSTER_DIR%/*}" 2>/dev/null || :; fi
}

# As root. Services that this installation brings are kept from starting now (policy-rc.d) and at boot (disable).
install_packages() {
    restore
    trap 'restore' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    trap 'exit 129' HUP
    made_cluster_dir=
    if [ ! -d "$CLUSTER_DIR" ]; then
        mkdir -p "$CLUSTER_DIR"
        made_cluster_dir=yes
    fi
    echo 'create_main_cluster = false' >"$CLUSTER_CONF"
    if [ -e "$POLICY" ] || [ -L "$POLICY" ]; then mv "$POLICY" "$POLICY_SAVED"; fi
    printf '#!/bin/sh\n# %s\nexit 101\n' "$POLICY_MARK" >"$POLICY"
    chmod 755 "$POLICY"

    # Only services that were not here before are ours to keep from starting at boot.
    fresh=
    for service in redis-server postgresql pgbouncer; do
        [ -e "/etc/init.d/$service" ] || fresh="$fresh $service"
    done
    export DEBIAN_FRONTEND=noninteractive
    apt-get -q -o DPkg::Lock::Timeout=120 update
    apt-get -q -y -o DPkg::Lock::Timeout=120 install --no-install-recommends "$@"
    for service in $fresh; do
        if [ -e "/etc/init.d/$service" ]; then update-rc.d "$service" disable >/dev/null; fi
    done
}

# What this run would have to install, by the names of the platform's packages.
list_missing() {
    missing=
    have_compiler || missing="$missing $1"
    have_postgres || missing="$missing $2"
    have_redis || missing="$missing $3"
    [ -z "${4:-}" ] || have_python || missing="$missing $4"
    [ -z "${5:-}" ] || have_bubblewrap || missing="$missing $5"
    [ -z "${6:-}" ] || have_pgbouncer || missing="$missing $6"
    missing=${missing# }
}

main() {
    if ! command -v cargo >/dev/null; then
        say 'cargo not found; install Rust with:'
        say ''
        say "    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"
        exit 3
    fi
    if [ "$(uname -s)" = Darwin ]; then
        list_missing '' postgresql@17 redis
        have_compiler || { say 'a C compiler was not found; install it with (untested): xcode-select --install'; exit 3; }
        [ -n "$missing" ] || exit 0
        say "missing: $missing; install with (untested):"
        say ''
        say "    brew install $missing"
        exit 3
    fi

    list_missing 'gcc libc6-dev' postgresql redis-server python3 bubblewrap pgbouncer
    [ -n "$missing" ] || exit 0
    if ! is_debian; then
        say "missing, by the names of Debian's packages: $missing"
        say "install them with this system's package manager; no service needs to run"
        exit 3
    fi
    if [ "$(id -u)" -eq 0 ]; then
        become=
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        become='sudo -n'
    else
        say "missing: $missing; install with:"
        say ''
        say "    sudo apt-get update && sudo apt-get install -y --no-install-recommends $missing"
        say ''
        say '(sudo make bootstrap does the same and keeps the system services from starting)'
        exit 3
    fi
    say "==> installing with apt-get: $missing"
    say '    (no system service is started or enabled; Longhaul runs private servers from these binaries)'
    # shellcheck disable=SC2086 # a list of words, both
    $become sh "$0" --install $missing >&2
    list_missing 'gcc libc6-dev' postgresql redis-server python3 bubblewrap pgbouncer
    if [ -n "$missing" ]; then
        say "apt-get succeeded, but this is still missing: $missing"
        exit 1
    fi
    say '==> installed'
}

case ${1:-} in
'') main ;;
--install)
    shift
    install_packages "$@"
    ;;
*)
    say "usage: sh $0"
    exit 2
    ;;
esac
