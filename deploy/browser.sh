#!/bin/sh
# Makes sure that the tests of the browser tools have a browser (Debian's chromium-headless-shell, Linux only), which
# nothing else needs. Silent and quick when they have.
#
# As root, or with sudo that asks for no password, on Debian or Ubuntu: the package. Everybody else gets the command.
# A failed installation is a warning: the tests that need the browser fail then, or are left out on request.
set -eu

say() { printf '%s\n' "$*" >&2; }

warn() {
    say "==> chromium-headless-shell is not installed ($1): the tests of the browser tools will fail;"
    say '    LONGHAUL_TEST_BROWSER=none leaves them out, a path names another browser'
    exit 0
}

has_browser() {
    [ "$(uname -s)" != Linux ] || [ -n "${LONGHAUL_TEST_BROWSER:-}" ] || [ -x /usr/bin/chromium-headless-shell ]
}

apt() { apt-get -q -y -o DPkg::Lock::Timeout=120 "$@" >/dev/null; }

if has_browser; then exit 0; fi
if ! command -v apt-get >/dev/null; then warn "install it with this system's package manager"; fi
if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then exec sudo -n sh "$0"; fi
    warn "install it with: sudo sh $0"
fi
say '==> installing with apt-get: chromium-headless-shell'
export DEBIAN_FRONTEND=noninteractive
apt update && apt install --no-install-recommends chromium-headless-shell || warn 'its installation failed'
has_browser || warn 'its installation failed'
say '==> installed'
