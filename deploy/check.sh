#!/bin/sh
# Checks the files of this directory that are not code: the Helm chart, the Prometheus rules and their tests, the
# Grafana dashboard, the compose file and the systemd units. tests/it/deploy.rs checks that they name existing metrics,
# alerts and settings.
#
# The tools come from PyPI and Debian and are kept in target/deploy-check; nothing is installed on the machine. A tool
# that cannot be had is announced by a line "skipped: …", and its checks are left out.
#
# helm itself and kubeconform are in no package registry that CI can rely on. In their place:
#   helm lint, helm template   the same Go code, as the library of the Python package helm-python-sdk (Linux, x86-64)
#   kubeconform -strict        the strict schemas in the package kubernetes-validate, and for KEDA and the Prometheus
#                              operator schemas of our own in check.py, which cover the fields that the chart uses
#   a linter for dashboards    promtool parses every query of the dashboard as a rule
set -u

cd "$(dirname "$0")/.." || exit 1
tools=$PWD/target/deploy-check
python=$tools/venv/bin/python
helm_sdk=helm-python-sdk==0.2.2
check_jsonschema=check-jsonschema==0.39.0
kubernetes_validate=kubernetes-validate==1.37.0
wheel=$tools/kubernetes_validate-1.37.0-py3-none-any.whl
failed=0

# check <name> <command>...
check() {
    name=$1
    shift
    if "$@"; then
        echo "ok: $name"
    else
        echo "FAILED: $name" >&2
        failed=1
    fi
}

skip() { echo "skipped: $1 ($2)"; }

pip() { "$python" -m pip --quiet --disable-pip-version-check "$@" >/dev/null 2>&1; }

install_python_tools() {
    [ -x "$python" ] || python3 -m venv "$tools/venv" >/dev/null 2>&1 || return 1
    pip install "$check_jsonschema" pyyaml
}

# Only unpacked, because its installation would start a server.
install_promtool() {
    if command -v promtool >/dev/null; then
        promtool=promtool
        return 0
    fi
    promtool=$tools/prometheus/usr/bin/promtool
    [ -x "$promtool" ] && return 0
    command -v apt-get >/dev/null && command -v dpkg >/dev/null || return 1
    mkdir -p "$tools/prometheus" || return 1
    (cd "$tools" && rm -f prometheus_*.deb && apt-get -q download prometheus) >/dev/null 2>&1 ||
        { [ "$(id -u)" -eq 0 ] && apt-get -q update >/dev/null 2>&1 &&
            (cd "$tools" && apt-get -q download prometheus) >/dev/null 2>&1; } || return 1
    dpkg -x "$tools"/prometheus_*.deb "$tools/prometheus" && rm -f "$tools"/prometheus_*.deb && [ -x "$promtool" ]
}

dashboard() {
    "$python" deploy/check.py dashboard deploy/grafana/longhaul.json >"$tools/dashboard.yml" &&
        "$promtool" check rules "$tools/dashboard.yml" >"$tools/dashboard.log" 2>&1 ||
        { cat "$tools/dashboard.log" >&2; return 1; }
}

rules() {
    # With the rules that it names.
    "$promtool" check config deploy/prometheus/prometheus.yml >/dev/null &&
        "$promtool" test rules deploy/prometheus/tests.yaml
}

compose() {
    "$tools/venv/bin/check-jsonschema" --builtin-schema vendor.compose-spec deploy/compose.yaml
}

# The program need not be installed here: /bin/true stands in for it. A template is verified as one of its instances.
units() {
    rm -rf "$tools/units" && mkdir -p "$tools/units" || return 1
    for unit in deploy/systemd/*; do
        sed 's|^ExecStart=/usr/local/bin/longhaul|ExecStart=/bin/true|' "$unit" \
            >"$tools/units/$(basename "$unit" | sed 's/@\./@9464./')" || return 1
    done
    # Complaints that do not change the exit status count as well.
    complaints=$(cd "$tools/units" && systemd-analyze verify --man=no ./*.service ./*.timer 2>&1) &&
        [ -z "$complaints" ] || { printf '%s\n' "$complaints" >&2; return 1; }
}

mkdir -p "$tools"
if install_python_tools; then
    check 'the compose file fits the compose specification' compose
    if ! pip install "$helm_sdk"; then
        skip 'the Helm chart' 'pip cannot install helm-python-sdk'
    elif ! { [ -e "$wheel" ] || pip download --no-deps --dest "$tools" "$kubernetes_validate"; }; then
        skip 'the Helm chart' 'pip cannot download kubernetes-validate'
    else
        check 'the Helm chart lints, and its objects are valid' \
            "$python" deploy/check.py chart deploy/helm/longhaul "$wheel"
    fi
else
    skip 'the compose file and the Helm chart' 'pip cannot install check-jsonschema'
fi
if install_promtool; then
    check 'the Prometheus rules are valid, and their tests pass' rules
    if [ -x "$tools/venv/bin/check-jsonschema" ]; then
        check 'the queries of the dashboard parse' dashboard
    else
        skip 'the queries of the dashboard' 'they are taken out by Python'
    fi
else
    skip 'the Prometheus rules and the dashboard' 'promtool cannot be installed'
fi
if command -v systemd-analyze >/dev/null; then
    check 'the systemd units are valid' units
else
    skip 'the systemd units' 'systemd-analyze is not installed'
fi
exit "$failed"
