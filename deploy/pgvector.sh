#!/bin/sh
# Makes sure that PostgreSQL here has pgvector, which the tests of retrieval need and nothing else does: without it
# Longhaul migrates and runs, and its own indexes are searched by words alone. Silent and quick when it has.
#
# As root, or with sudo that asks for no password, on Debian or Ubuntu: the package postgresql-<major>-pgvector where
# the release has one. Debian 12 has none, so there the source package of Debian 13 is compiled (apt checks its
# signature) against the headers of this PostgreSQL, in a directory that is removed again. Everybody else gets the
# command. Where it does not come to be, a warning says so, and the tests that need it fail.
set -eu

say() { printf '%s\n' "$*" >&2; }

warn() {
    say "==> pgvector is not installed ($1): the tests of retrieval that need it will fail"
    exit 0
}

# The newest PostgreSQL, as Longhaul takes it.
find_postgres() {
    # shellcheck disable=SC2012 # the names are numbers
    for version in $(ls /usr/lib/postgresql 2>/dev/null | sort -rn); do
        if [ -x "/usr/lib/postgresql/$version/bin/initdb" ]; then
            major=$version
            return 0
        fi
    done
    return 1
}

has_vector() { [ -e "/usr/share/postgresql/$major/extension/vector.control" ]; }

apt() { apt-get -q -y -o DPkg::Lock::Timeout=120 "$@"; }

# $1: an empty directory that is ours.
compile() {
    # The mirror that this machine uses, at the release that has the source.
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep '/debian/*$' | head -n 1)
    [ -n "$mirror" ] || return 1
    mkdir -p "$1/lists/partial" "$1/headers" "$1/source"
    echo "deb-src $mirror trixie main" >"$1/sources.list"
    cd "$1"
    from="-o Dir::Etc::sourcelist=$1/sources.list -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists=$1/lists \
        -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root"
    # shellcheck disable=SC2086 # a list of words
    apt $from update >/dev/null && apt $from source --download-only pgvector >/dev/null || return 1
    # Unpacked and not installed: as a package it wants two compilers more.
    apt update >/dev/null && apt -o APT::Sandbox::User=root download "postgresql-server-dev-$major" >/dev/null || return 1
    dpkg -x "postgresql-server-dev-$major"*.deb headers || return 1
    tar -xzf pgvector_*.orig.tar.gz -C source --strip-components=1 || return 1
    cd source
    for file in src/*.c; do
        cc -O2 -fPIC -ftree-vectorize -fassociative-math -fno-signed-zeros -fno-trapping-math -fno-strict-aliasing -fwrapv \
            -I"$1/headers/usr/include/postgresql/$major/server" -c "$file" -o "${file%.c}.o" || return 1
    done
    cc -shared -o vector.so src/*.o || return 1
    release=$(sed -n "s/^default_version = '\(.*\)'/\1/p" vector.control)
    extension=/usr/share/postgresql/$major/extension
    install -m 644 vector.so "/usr/lib/postgresql/$major/lib/"
    install -m 644 sql/vector--*--*.sql "$extension/"
    install -m 644 sql/vector.sql "$extension/vector--$release.sql"
    # Last: from now on PostgreSQL says that it has it.
    install -m 644 vector.control "$extension/"
}

install_here() {
    apt update >/dev/null || return 1
    if apt-cache show "postgresql-$major-pgvector" >/dev/null 2>&1; then
        apt install --no-install-recommends "postgresql-$major-pgvector" >/dev/null || return 1
        return 0
    fi
    grep -q '^ID=debian' /etc/os-release || return 1
    scratch=$(mktemp -d "${TMPDIR:-/tmp}/longhaul-pgvector.XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    compile "$scratch"
}

case ${1:-} in
'' | --install) ;;
*)
    say "usage: sh $0"
    exit 2
    ;;
esac
find_postgres || warn 'no PostgreSQL was found where Debian puts it'
if has_vector; then exit 0; fi
if ! command -v apt-get >/dev/null; then warn "install it with this system's package manager"; fi
if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then exec sudo -n sh "$0" --install; fi
    warn "install it with: sudo sh $0"
fi
say "==> installing pgvector for PostgreSQL $major"
install_here || warn 'its installation failed'
has_vector || warn 'its installation failed'
say '==> installed'
