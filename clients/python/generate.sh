#!/bin/sh
# Generates src/longhaul/_generated from the API's OpenAPI document: docs/openapi.json unless another one is given.
# GENERATOR: path of openapi-python-client 0.28.4, if it is not in PATH. The code of later versions needs Python 3.11.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
exec "${GENERATOR:-openapi-python-client}" generate --path "${1:-$here/../../docs/openapi.json}" \
    --config "$here/generator.yml" --custom-template-path "$here/templates" --meta none \
    --output-path "$here/src/longhaul/_generated" --overwrite --fail-on-warning
