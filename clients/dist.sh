#!/bin/sh
# Builds the packages of the clients: a wheel, a source archive and an npm tarball, in target/clients or in the folder
# that is given. Needs Python 3.10, Node 20 and, for hatchling and the TypeScript compiler, their registries.
set -eu
cd "$(dirname "$0")/.."
to=${1:-target/clients}
mkdir -p "$to"
to=$(cd "$to" && pwd)
rm -rf "$to"/longhaul-* "$to/build"
mkdir "$to/build"

python3 -B clients/generate --check
# The tools write beside the sources, so they work on a copy.
for package in python typescript; do
    cp -R "clients/$package" "$to/build/$package"
    cp LICENSE "$to/build/$package"
done

venv=$to/venv
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
hatchling=$(grep '^hatchling==' clients/python/requirements-dev.txt)
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$hatchling"
(cd "$to/build/python" && SOURCE_DATE_EPOCH=0 "$venv/bin/python" -m hatchling build -d "$to" >/dev/null)

cd "$to/build/typescript"
rm -rf node_modules dist
npm install --silent
npm pack --silent --pack-destination "$to" >/dev/null
cd "$to" && rm -rf build && ls longhaul-*
