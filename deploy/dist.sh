#!/bin/sh
# Builds the program as it is installed: compiled for what it was seen to do
# (docs/adr/0023-compiled-for-what-it-does.md).
#
# Two builds of the dist profile: one that counts what runs, on which the benchmarks run with private servers, and one
# that is laid out by what was counted. The second one is target/guided/<host>/dist/longhaul. Linux; needs PostgreSQL,
# Redis and llvm-profdata, and takes twice as long as one build. RUSTFLAGS are replaced. The second one has no `bench`;
# --no-proof leaves `verify` out of it as well.
set -eu
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*" >&2; }

# longhaul-proof is named with the benchmarks, so that every crate has the same features and thereby the same symbols as
# in the first build: the counts are found by them. Code that the program does not call is not linked.
features='-p longhaul-proof --features longhaul-proof/bench'
case ${1:-} in
    '') ;;
    --no-proof) features="$features --no-default-features" ;;
    *) say "usage: sh $0 [--no-proof]"; exit 2 ;;
esac

if ! command -v rustc > /dev/null; then
    say "rustc not found; install it from https://rustup.rs"
    exit 3
fi
host=$(rustc -vV | sed -n 's/^host: //p')
case $host in
    *-linux-*) ;;
    *) say "a guided build is made on Linux; elsewhere: cargo build --profile dist -p longhaul-cli"; exit 3 ;;
esac

# It would send the counts elsewhere.
unset LLVM_PROFILE_FILE
try=$(mktemp -d)
trap 'rm -rf "$try"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# What is asked of the tools is asked with a program of nothing, and before the benchmarks.
echo 'fn main() {}' > "$try/main.rs"
rustc "-Cprofile-generate=$try/counts" -o "$try/main" "$try/main.rs"
"$try/main"
# The toolchain's own, or the newest of the system that reads the format this rustc writes.
profdata=
for tool in "$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata" \
    llvm-profdata-24 llvm-profdata-23 llvm-profdata-22 llvm-profdata-21 llvm-profdata-20 llvm-profdata-19 llvm-profdata; do
    if "$tool" merge -o "$try/merged" "$try/counts" 2> /dev/null; then
        profdata=$tool
        break
    fi
done
if [ -z "$profdata" ]; then
    say "no llvm-profdata that reads what this rustc counts; install it with: rustup component add llvm-tools"
    exit 3
fi

counted=$PWD/target/counting/$host
# What ran, however seldom, lies together and apart from what did not, so that what did not is never read from the disk.
set -- "-Cprofile-use=$counted/merged.profdata" -Cllvm-args=-profile-summary-cold-count=0 \
    -Clink-arg=-Wl,-z,keep-text-section-prefix
# asks_linker <argument>: for what not every linker and C library knows.
asks_linker() { rustc "$1" -o "$try/main" "$try/main.rs" 2> /dev/null && "$try/main"; }
# The compiler cannot see it of everything that ran: what is marked as cold, and what is left of a function that
# became part of its callers.
echo main > "$try/ran"
order=-Clink-arg=-Wl,--no-warn-symbol-ordering,--symbol-ordering-file=
if asks_linker "$order$try/ran"; then set -- "$@" "$order$counted/ran"; fi
# The list of addresses that are set at each start, packed: a megabyte less.
packed=-Clink-arg=-Wl,-z,pack-relative-relocs
if asks_linker "$packed"; then set -- "$@" "$packed"; fi

# guided_build <directory under target> <arguments of cargo> <flag of rustc>...
guided_build() {
    dir=$1 extra=$2
    shift 2
    flags=
    for flag in "$@"; do flags=$flags${flags:+$(printf '\037')}$flag; done
    # shellcheck disable=SC2086 # words of cargo's
    CARGO_ENCODED_RUSTFLAGS=$flags cargo build --locked --profile dist -p longhaul-cli $extra --bin longhaul \
        --target "$host" --target-dir "target/$dir"
}

guided_build counting "--features bench" "-Cprofile-generate=$counted/counts"
rm -rf "$counted/counts"
"$counted/dist/longhaul" bench throughput
"$counted/dist/longhaul" bench throughput --rounds 5 --executions 3000
"$counted/dist/longhaul" bench latency
"$counted/dist/longhaul" bench in-flight --delay-ms 1000 --waves 5 --http2
"$profdata" merge -o "$counted/merged.profdata" "$counted/counts"

# The functions that ran, most often first.
"$profdata" show --all-functions --counts "$counted/merged.profdata" | awk '
    /^  [^ ].*:$/ { name = substr($0, 3, length($0) - 3); sub(/.*;/, "", name) }
    /^    (Block counts|Function count):/ {
        most = 0
        n = split($0, counts, /[^0-9]+/)
        for (i = 1; i <= n; i++) if (counts[i] + 0 > most) most = counts[i] + 0
        if (most > 0) printf "%.0f %s\n", most, name
    }
' | sort -k1,1nr | awk '!seen[$2]++ { print $2 }' > "$counted/ran"
if [ ! -s "$counted/ran" ]; then
    say "$profdata shows the counts in a form that this script does not read"
    exit 1
fi

guided_build guided "$features" "$@"
say "target/guided/$host/dist/longhaul"
