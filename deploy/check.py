"""Checks of deploy/check.sh that need a program: the Helm chart and the queries of the Grafana dashboard.

check.py chart DIRECTORY KUBERNETES_VALIDATE_WHEEL
    Lints and renders the chart with Helm's own engine, by default values and by each file in ci/, and validates every
    object strictly: unknown fields are errors. The schemas are those of Kubernetes, read out of the wheel of
    kubernetes-validate, without unpacking its 17,000 files. Kinds of KEDA and of the Prometheus operator have
    schemas below, for the fields that the chart uses.
check.py dashboard FILE
    Prints the queries of the dashboard as a rules file, for `promtool check rules`.
"""

import json
import re
import sys
import zipfile
from pathlib import Path

import yaml

# The oldest version that the chart allows, and a recent one.
KUBERNETES = ["1.27.0", "1.37.0"]


def closed(required=(), **properties):
    """Schema of an object that has these properties and no others."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": properties,
    }


def array(items):
    return {"type": "array", "minItems": 1, "items": items}


TEXT = {"type": "string", "minLength": 1}
COUNT = {"type": "integer", "minimum": 0}
TEXTS = {"type": "object", "additionalProperties": TEXT}
SELECTOR = closed(["matchLabels"], matchLabels=TEXTS)
RELABELING = closed(
    ["action", "targetLabel", "replacement"], action={"const": "replace"}, targetLabel=TEXT, replacement=TEXT
)
ENDPOINTS = array(
    closed(
        ["port", "path", "interval"],
        port=TEXT,
        path=TEXT,
        interval={"type": "string", "pattern": "^[0-9]+(ms|s|m|h)$"},
        relabelings=array(RELABELING),
    )
)
TRIGGER = closed(
    ["type", "metadata"],
    type={"const": "metrics-api"},
    metricType={"enum": ["AverageValue", "Value"]},
    metadata=closed(
        ["url", "valueLocation", "targetValue"],
        url={"type": "string", "pattern": "^https?://"},
        valueLocation=TEXT,
        targetValue=TEXT,
        authMode={"enum": ["apiKey", "basic", "bearer", "tls"]},
    ),
    authenticationRef=closed(["name"], name=TEXT),
)
# Specs of the kinds that Kubernetes' own schemas do not have.
CUSTOM = {
    ("monitoring.coreos.com/v1", "ServiceMonitor"): closed(
        ["selector", "endpoints"], selector=SELECTOR, endpoints=ENDPOINTS
    ),
    ("monitoring.coreos.com/v1", "PodMonitor"): closed(
        ["selector", "podMetricsEndpoints"], selector=SELECTOR, podMetricsEndpoints=ENDPOINTS
    ),
    ("keda.sh/v1alpha1", "TriggerAuthentication"): closed(
        ["secretTargetRef"],
        secretTargetRef=array(closed(["parameter", "name", "key"], parameter=TEXT, name=TEXT, key=TEXT)),
    ),
    ("keda.sh/v1alpha1", "ScaledObject"): closed(
        ["scaleTargetRef", "triggers"],
        scaleTargetRef=closed(["name"], name=TEXT),
        minReplicaCount=COUNT,
        maxReplicaCount=COUNT,
        pollingInterval=COUNT,
        cooldownPeriod=COUNT,
        triggers=array(TRIGGER),
    ),
}

# Values that the chart must refuse.
REFUSED = [
    {"worker": {"drainSecond": 60}},
    {"worker": {"queues": []}},
    {"worker": {"drainSeconds": 1}},
    {"prune": {"olderThan": "10h"}},
    {"llm": {"url": "models.example"}},
]


class Kubernetes:
    """Schemas of one version of Kubernetes."""

    def __init__(self, wheel, version):
        from jsonschema import Draft202012Validator
        from referencing import Registry, Resource
        from referencing.jsonschema import DRAFT202012

        self.wheel = wheel
        self.folder = f"kubernetes_validate/kubernetes-json-schema/v{version}-local-strict"
        definitions = self.read("_definitions.json")
        resource = Resource.from_contents(definitions, default_specification=DRAFT202012)
        self.registry = Registry().with_resource("_definitions.json", resource)
        self.validator = Draft202012Validator

    def read(self, name):
        with self.wheel.open(f"{self.folder}/{name}") as file:
            return json.load(file)

    def errors(self, item):
        group, _, version = item["apiVersion"].rpartition("/")
        group = group.split(".")[0]
        schema = self.read("-".join(part for part in [item["kind"].lower(), group, version] if part) + ".json")
        return self.validator(schema, registry=self.registry).iter_errors(item)


def custom_errors(item):
    from jsonschema import Draft202012Validator

    schema = closed(
        ["apiVersion", "kind", "metadata", "spec"],
        apiVersion=TEXT,
        kind=TEXT,
        metadata=closed(["name", "labels"], name=TEXT, labels=TEXTS),
        spec=CUSTOM[item["apiVersion"], item["kind"]],
    )
    return Draft202012Validator(schema).iter_errors(item)


def pod_spec(item):
    spec = item.get("spec", {})
    return spec.get("jobTemplate", spec).get("spec", spec).get("template", spec.get("template", {})).get("spec")


def broken_promises(item):
    """What the documentation says about pods and no schema checks."""
    pod = pod_spec(item)
    if pod is None:
        return
    (container,) = pod["containers"]
    variables = {variable["name"]: variable.get("value") for variable in container.get("env", [])}
    name, grace = container["name"], pod.get("terminationGracePeriodSeconds")
    if name == "worker" and not grace > int(variables["LONGHAUL__WORKER__DRAIN_SECONDS"]):
        yield f"the grace period ({grace} s) is not longer than the drain"
    if name == "api" and not grace > int(variables["LONGHAUL__API__SHUTDOWN_SECONDS"]):
        yield f"the grace period ({grace} s) is not longer than the shutdown"
    secrets = {
        "api": {"DATABASE_URL", "REDIS_URL", "LONGHAUL_API_KEY_PEPPER"},
        "worker": {"DATABASE_URL", "REDIS_URL", "LONGHAUL_LLM_API_KEY", "LONGHAUL_SANDBOX_TOKEN"},
        "sandbox": {"LONGHAUL_SANDBOX_TOKEN"},
        "migrate": {"DATABASE_URL"},
        "prune": {"DATABASE_URL"},
    }
    every = set().union(*secrets.values())
    extra = (every & set(variables)) - secrets[name]
    if extra:
        yield f"{name} gets {', '.join(sorted(extra))}"
    if pod.get("automountServiceAccountToken") is not False:
        yield f"{name} gets a token of the Kubernetes API"
    own = container["securityContext"]
    if not (own["readOnlyRootFilesystem"] and own["capabilities"] == {"drop": ["ALL"]}):
        yield f"{name} is not confined"


def chart(directory, wheel):
    import helm_python as helm

    failures = []
    directory = Path(directory)
    cases = {"default values": {}}
    for file in sorted((directory / "ci").glob("*.yaml")):
        cases[file.name] = yaml.safe_load(file.read_text())
    versions = {version: Kubernetes(zipfile.ZipFile(wheel), version).errors for version in KUBERNETES}
    count = 0
    with helm.Chart.load(str(directory)) as loaded:
        manifest = Path("Cargo.toml").read_text()
        program = re.search(r'^version = "(.*)"', manifest, re.MULTILINE).group(1)
        if loaded.metadata["appVersion"] != program:
            failures.append(f"appVersion is {loaded.metadata['appVersion']}, the program is {program}")
        for case, values in cases.items():
            linted = helm.lint(str(directory), values, strict=True)
            failures += [f"{case}: {error}" for error in linted["errors"]]
            # Severity 1 is advice: an icon.
            messages = [found for found in linted["messages"] if found["severity"] > 1]
            failures += [f"{case}: {found['path']}: {found['error']}" for found in messages]
            rendered = loaded.render(values, name="longhaul", namespace="agents")
            names = set()
            for path, text in rendered.items():
                for item in yaml.safe_load_all(text) if path.endswith(".yaml") else []:
                    if item is None:
                        continue
                    count += 1
                    name = f"{item['kind']}/{item['metadata']['name']}"
                    if name in names:
                        failures.append(f"{case}: {name} is rendered twice")
                    names.add(name)
                    is_custom = (item["apiVersion"], item["kind"]) in CUSTOM
                    schemas = {"own schema": custom_errors} if is_custom else versions
                    for schema, errors in schemas.items():
                        for error in errors(item):
                            at = "/".join(map(str, error.absolute_path))
                            failures.append(f"{case}: {name}, {schema}: {at}: {error.message[:300]}")
                    failures += [f"{case}: {name}: {problem}" for problem in broken_promises(item)]
        for values in REFUSED:
            try:
                loaded.validate_schema(values)
                failures.append(f"values.schema.json accepts {values}")
            except helm.HelmError:
                pass
    for failure in failures:
        print(failure, file=sys.stderr)
    print(f"{count} objects of {len(cases)} sets of values, Kubernetes {' and '.join(KUBERNETES)}")
    return bool(failures)


def queries(panels):
    for panel in panels:
        yield from queries(panel.get("panels", []))
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


def dashboard(file):
    content = json.loads(Path(file).read_text())
    rules = []
    for title, query in queries(content["panels"]):
        query = query.replace("$__rate_interval", "5m").replace("$__range", "1h")
        labels = {"panel": title, "number": str(len(rules))}
        rules.append({"record": "dashboard:query", "expr": query, "labels": labels})
    yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}, sys.stdout)
    return not rules


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    sys.exit({"chart": chart, "dashboard": dashboard}[command](*arguments))
