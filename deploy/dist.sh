#!/bin/sh
# Builds the program as it is installed: compiled for what it was seen to do (docs/adr/0023-compiled-for-what-it-does.md).
#
# Two builds of the dist profile: one that counts what runs, on which the benchmarks run with private servers, and one that is laid out by what
# was counted. The second one is target/guided/<host>/dist/longhaul. Linux; needs PostgreSQL, Redis and llvm-profdata, and takes twice
# as long as one build. RUSTFLAGS are replaced.
set -eu
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*" >&2; }

if ! command -v rustc > /dev/null; then
    say "rustc not found; install it from https://rustup.rs"
    exit 3
fi
host=$(rustc -vV | sed -n 's/^host: //p')
case $host in
    *-linux-*) ;;
    *) say "a guided build is made on Linux; elsewhere: cargo build --profile dist -p longhaul-cli"; exit 3 ;;
esac

# The toolchain's own, or the newest of the system.
profdata() {
    own=$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata
    if [ -x "$own" ]; then
        echo "$own"
        return
    fi
    for version in 24 23 22 21 20 19; do
        if command -v "llvm-profdata-$version"; then return; fi
    done
    command -v llvm-profdata
}

# Whether it knows the format that this rustc writes: seen on a program of nothing, and not after the benchmarks.
knows_format() {
    try=$(mktemp -d)
    trap 'rm -rf "$try"' EXIT
    echo 'fn main() {}' > "$try/main.rs"
    rustc "-Cprofile-generate=$try/counts" -o "$try/main" "$try/main.rs" && "$try/main" && "$1" merge -o "$try/merged" "$try/counts"
}

if ! merge=$(profdata); then
    say "llvm-profdata not found; install it with: rustup component add llvm-tools"
    exit 3
fi
if ! (knows_format "$merge"); then
    say "$merge does not read what this rustc counts; install its own with: rustup component add llvm-tools"
    exit 3
fi

# guided_build <directory under target> <flag of rustc>...
guided_build() {
    dir=$1
    shift
    flags=
    for flag in "$@"; do flags=$flags${flags:+$(printf '\037')}$flag; done
    CARGO_ENCODED_RUSTFLAGS=$flags cargo build --locked --profile dist -p longhaul-cli --bin longhaul \
        --target "$host" --target-dir "target/$dir"
}

counts=$PWD/target/counting/$host/counts
merged=$PWD/target/counting/$host/merged.profdata
guided_build counting "-Cprofile-generate=$counts"
rm -rf "$counts"
counting=target/counting/$host/dist/longhaul
"$counting" bench throughput
"$counting" bench throughput --rounds 5 --executions 3000
"$counting" bench latency
"$counting" bench in-flight --delay-ms 1000 --waves 5 --http2
"$merge" merge -o "$merged" "$counts"

# What ran, however seldom, lies together and apart from what did not, so that what did not is never read from the disk. The list of
# addresses that are set at each start is packed, a megabyte less, where the C library knows how to read that: glibc from 2.36.
minor=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed -n 's/^glibc 2\.\([0-9]*\).*/\1/p')
layout=-Clink-arg=-Wl,-z,keep-text-section-prefix
if [ "${minor:-0}" -ge 36 ]; then layout=$layout,-z,pack-relative-relocs; fi
guided_build guided "-Cprofile-use=$merged" -Cllvm-args=-profile-summary-cold-count=0 "$layout"
say "target/guided/$host/dist/longhaul"
