//! Rules that the document keeps, whatever is added to it, and the comparison of all error codes with the reference.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use longhaul_domain::{ExecutionStatus, WaitReason};
use longhaul_sdk::FailureClass;
use serde_json::{Map, Value, json};
use strum::VariantNames;

use super::{closed, errors, headers, schemas};
use crate::{
    catalog_error::CatalogError,
    error::ApiError,
    idempotency_error::IdempotencyError,
    remote::WorkerError,
    routes::{
        channels::ChannelError, definitions::DefinitionError, executions::ExecutionError, files::FileError,
        human_requests::DecisionError, indexes::SearchError, keys::KeyError, limits::LimitError,
        projects::ProjectError, quarantine::ReleaseError, runs::RunError, schedules::ScheduleError,
        sessions::SessionError, webhooks::WebhookError,
    },
};

const METHODS_WITH_CONTENT: [&str; 2] = ["application/json", "application/problem+json"];

/// All operations by their ids.
fn operations(document: &Value) -> BTreeMap<&str, &Value> {
    let items = document["paths"].as_object().unwrap().values().flat_map(|item| item.as_object().unwrap().values());
    items.map(|operation| (operation["operationId"].as_str().unwrap(), operation)).collect()
}

/// Calls `look` with every object of the document and its path.
fn walk(value: &Value, path: &str, look: &mut impl FnMut(&str, &Map<String, Value>)) {
    match value {
        Value::Object(members) => {
            look(path, members);
            // Examples and defaults are values, not schemas.
            let inner = members.iter().filter(|(name, _)| !["example", "examples", "default"].contains(&name.as_str()));
            inner.for_each(|(name, member)| walk(member, &format!("{path}/{name}"), look));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, item)| walk(item, &format!("{path}/{at}"), look));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Paths of the objects for which `is_bad` holds.
fn found(document: &Value, is_bad: impl Fn(&Map<String, Value>) -> bool) -> Vec<String> {
    let mut bad = Vec::new();
    walk(document, "", &mut |path, object| {
        if is_bad(object) {
            bad.push(path.to_owned());
        }
    });
    bad
}

#[test]
fn operation_ids_are_unique() {
    let document = crate::openapi();
    let all =
        document["paths"].as_object().unwrap().values().map(|item| item.as_object().unwrap().len()).sum::<usize>();
    let ids = operations(&document);
    assert_eq!(ids.len(), all);
    assert!(ids.contains_key("getExecution") && ids.contains_key("listExecutions"), "{ids:?}");
}

#[test]
fn every_reference_leads_to_a_component() {
    let document = crate::openapi();
    let text = document.to_string();
    let references = text.split(r##""$ref":"#"##).skip(1).filter_map(|rest| rest.split('"').next());
    let lost: Vec<&str> = references.filter(|reference| document.pointer(reference).is_none()).collect();
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn any_json_has_no_type() {
    let schemas = &crate::openapi()["components"]["schemas"];
    for (schema, property) in
        [("Execution", "output"), ("Execution", "input"), ("Question", "answer"), ("AnswerBody", "answer")]
    {
        let any = &schemas[schema]["properties"][property];
        assert!(any["type"].is_null() && any["oneOf"].is_null(), "{schema}.{property}: {any}");
    }
}

#[test]
fn free_objects_say_so() {
    assert_eq!(found(&crate::openapi(), schemas::is_free_object), Vec::<String>::new());
}

#[test]
fn schemas_use_what_generators_know() {
    let document = crate::openapi();
    let is_bad = |object: &Map<String, Value>| {
        let is_schema = |name: &str| object.get(name).is_some_and(|value| value.is_object() || value.is_boolean());
        object.get("items").is_some_and(Value::is_boolean) || (is_schema("if") && is_schema("then"))
    };
    assert_eq!(found(&document, is_bad), Vec::<String>::new());
    let constants = |object: &Map<String, Value>| {
        let branches = object.get("oneOf").and_then(Value::as_array);
        branches.is_some_and(|branches| branches.iter().all(|branch| branch["type"] == "string"))
    };
    assert_eq!(found(&document, constants), Vec::<String>::new());
}

/// Generated code uses one name for both, which breaks with a list or an object.
#[test]
fn no_schema_is_named_as_its_list_or_object() {
    let document = crate::openapi();
    let snake = |name: &str| {
        let parts = name.char_indices().map(|(at, c)| match (at, c.is_uppercase()) {
            (0, _) | (_, false) => c.to_ascii_lowercase().to_string(),
            (_, true) => format!("_{}", c.to_ascii_lowercase()),
        });
        parts.collect::<String>()
    };
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let clashes = schemas.iter().filter(|(name, schema)| {
        let property = &schema["properties"][snake(name)];
        property["type"] == "array" || property["type"] == "object" || property["$ref"].is_string()
    });
    let clashes: Vec<&String> = clashes.map(|(name, _)| name).collect();
    assert!(clashes.is_empty(), "{clashes:?}");
}

#[test]
fn closed_sets_have_the_values_of_their_enums() {
    let document = crate::openapi();
    let schemas = &document["components"]["schemas"];
    let missing: Vec<&&str> = closed::NAMES.iter().filter(|name| !schemas[**name]["enum"].is_array()).collect();
    assert!(missing.is_empty(), "no field or parameter has {missing:?}");
    let names = |all: Vec<&'static str>| json!(all);
    let statuses = ExecutionStatus::ALL.iter().map(|status| status.as_str()).collect();
    assert_eq!(schemas["ExecutionStatus"]["enum"], names(statuses));
    assert_eq!(schemas["WaitReason"]["enum"], names(WaitReason::ALL.iter().map(|reason| reason.as_str()).collect()));
    assert_eq!(schemas["FailureClass"]["enum"], names(FailureClass::ALL.iter().map(|class| class.as_str()).collect()));
    let status = &schemas["Execution"]["properties"]["status"];
    assert!(status.to_string().contains("/ExecutionStatus\""), "{status}");
}

/// The values of a column's check constraint.
fn of_column(migration: &str, column: &str) -> BTreeSet<String> {
    let (_, rest) = migration.split_once(&format!("check ({column} in (")).unwrap();
    let (list, _) = rest.split_once(')').unwrap();
    list.split(',').map(|value| value.trim().trim_matches('\'').to_owned()).collect()
}

#[test]
fn sets_without_an_enum_match_their_columns() {
    macro_rules! migration {
        ($name:literal) => {
            include_str!(concat!("../../../../migrations/", $name, ".sql"))
        };
    }
    let history = migration!("20261123211005_history");
    let providers = migration!("20261123211008_provider_health");
    let limits = migration!("20261123211009_concurrency_limits");
    let quarantine = migration!("20261123211010_quarantine");
    let contract = migration!("20261123211011_contract");
    let projects = migration!("20261125070000_projects");
    let all: [(&str, &str, &[&str]); 6] = [
        (history, "outcome", &closed::ATTEMPT_OUTCOMES),
        (providers, "cause", &closed::BREAKER_CAUSES),
        (limits, "source", &closed::LIMIT_SOURCES),
        (quarantine, "state", &closed::GROUP_STATES),
        (contract, "health", &closed::PROVIDER_HEALTH_STATES),
        (projects, "pause_reason", &closed::PROJECT_PAUSE_REASONS),
    ];
    for (migration, column, values) in all {
        assert_eq!(of_column(migration, column), values.iter().map(|value| (*value).to_owned()).collect(), "{column}");
    }
}

#[test]
fn event_kinds_match_the_reference_table() {
    let guide = include_str!("../../../../docs/reference/api.md");
    let table = guide.split("## Events").nth(1).unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    assert_eq!(rows.collect::<Vec<_>>(), closed::EVENT_KINDS);
}

/// A property of an answer is required, or it is left out when there is no value; then it is never null.
#[test]
fn answers_require_what_may_be_null() {
    let document = crate::openapi();
    let mut lax = Vec::new();
    for name in of_answers(&document) {
        let schema = &document["components"]["schemas"][&name];
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        let properties = schema["properties"].as_object().cloned().unwrap_or_default();
        lax.extend(
            properties
                .iter()
                .filter(|(property, of)| schemas::may_be_null(of) && !required.contains(&json!(property)))
                .map(|(property, _)| format!("{name}.{property}")),
        );
    }
    assert!(lax.is_empty(), "{lax:?}");
}

/// Names of the schemas that only answers have.
fn of_answers(document: &Value) -> BTreeSet<String> {
    let (mut asked, mut answered) = (BTreeSet::new(), BTreeSet::new());
    for operation in operations(document).values() {
        gather(document, &operation["requestBody"], &mut asked);
        gather(document, &operation["responses"], &mut answered);
    }
    answered.difference(&asked).cloned().collect()
}

/// Collects the names of the schemas to which `value` refers.
fn gather(document: &Value, value: &Value, names: &mut BTreeSet<String>) {
    let mut referred = Vec::new();
    walk(value, "", &mut |_, object| {
        let reference = object.get("$ref").and_then(Value::as_str);
        referred.extend(reference.and_then(|text| text.strip_prefix("#/components/schemas/")).map(str::to_owned));
    });
    for name in referred {
        if names.insert(name.clone()) {
            gather(document, &document["components"]["schemas"][name.as_str()], names);
        }
    }
}

/// Read from the source: the schema of a field does not tell that serde leaves it out.
#[test]
fn fields_that_are_left_out_are_described_as_optional() {
    let sources = [
        include_str!("../problem.rs"),
        include_str!("../routes/executions/batch.rs"),
        include_str!("../routes/executions/steps.rs"),
        include_str!("../routes/executions/view.rs"),
        include_str!("../routes/human_requests/view.rs"),
        include_str!("../routes/sessions/frame_data.rs"),
        include_str!("../routes/sessions/read.rs"),
    ];
    for source in sources {
        let fields = source.split("#[serde(skip_serializing_if").skip(1);
        let lax: Vec<&str> = fields
            .filter_map(|rest| rest.lines().nth(1))
            .filter(|line| !line.contains("required = false") || line.contains("Option<"))
            .collect();
        assert!(lax.is_empty(), "{lax:?}");
    }
}

#[test]
fn parameters_are_sent_as_text() {
    let document = crate::openapi();
    for (id, operation) in operations(&document) {
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let (name, schema) = (parameter["name"].as_str().unwrap(), &parameter["schema"]);
            assert!(!schemas::may_be_null(schema), "{id}: {name} may be null");
            assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)), "{id}: {name}");
            assert!(parameter["in"] != "header" || schema["type"] == "string", "{id}: the header {name} is no text");
        }
    }
}

#[test]
fn every_body_has_a_schema() {
    let document = crate::openapi();
    for (id, operation) in operations(&document) {
        let responses = operation["responses"].as_object().unwrap().iter();
        let answers = responses
            .filter(|(status, _)| !["101", "204"].contains(&status.as_str()))
            .map(|(_, response)| &response["content"]);
        for content in answers.chain(operation.get("requestBody").map(|body| &body["content"])) {
            let content = content.as_object().unwrap_or_else(|| panic!("{id}: a body without a media type"));
            for (media_type, body) in content {
                let schema = body["schema"].as_object().unwrap_or_else(|| panic!("{id}: {media_type} has no schema"));
                let is_named = schema.contains_key("$ref") || !METHODS_WITH_CONTENT.contains(&media_type.as_str());
                assert!(is_named, "{id}: {media_type} has no component");
            }
        }
    }
}

#[test]
fn errors_are_described_for_every_operation() {
    let document = crate::openapi();
    for (path, item) in document["paths"].as_object().unwrap() {
        for operation in item.as_object().unwrap().values() {
            let responses = &operation["responses"];
            assert!(!path.starts_with("/v1/") || responses["401"].is_object(), "{path}");
            let has_body = operation["requestBody"].is_object();
            // Over the wires a body that is late is as any that is wrong.
            let is_late = responses["408"].is_object() || operation["tags"][0] == "wires";
            assert_eq!(responses["413"].is_object() && is_late, has_body, "{path}");
        }
    }
    let internal = &document["paths"]["/v1/internal/agent-executions"];
    assert_eq!(internal["post"]["security"], json!([{"service_token": []}]));
    let conflict = &document["paths"]["/v1/executions/{id}/cancel"]["post"]["responses"]["409"];
    let example = &conflict["content"]["application/problem+json"]["example"];
    assert_eq!((&example["title"], &example["code"]), (&json!("Conflict"), &json!("execution_is_terminal")));
}

#[test]
fn tables_of_errors_and_headers_name_what_exists() {
    let document = crate::openapi();
    let operations = operations(&document);
    let of_errors = errors::OF_SINGLE.iter().flat_map(|(_, _, operations)| operations.iter());
    let of_headers = headers::OF_SINGLE.iter().flat_map(|(_, _, operations)| operations.iter());
    let lost: Vec<&&str> = of_errors.chain(of_headers).filter(|id| !operations.contains_key(**id)).collect();
    assert!(lost.is_empty(), "{lost:?}");
    let documented = documented_errors().filter(|(status, _)| [409, 410, 429].contains(status));
    let of_keys = [(409, errors::REUSED), (409, errors::IN_USE)];
    let known = errors::OF_SINGLE.iter().map(|(status, code, _)| (*status, *code)).chain(of_keys);
    assert_eq!(known.collect::<BTreeSet<_>>(), documented.collect::<BTreeSet<_>>());
}

/// Errors of docs/reference/api.md: status and code.
fn documented_errors() -> impl Iterator<Item = (u16, &'static str)> {
    let guide = include_str!("../../../../docs/reference/api.md");
    let table = guide.split("## Errors").nth(1).and_then(|rest| rest.split("## Events").next()).unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | `"));
    rows.filter_map(|(status, rest)| Some((status.parse().ok()?, rest.split('`').next()?)))
}

#[test]
fn error_codes_match_the_reference_table() {
    macro_rules! codes {
        ($($area:ident),*) => { [$((stringify!($area), $area::VARIANTS)),*] };
    }
    let areas = codes![
        CatalogError,
        ChannelError,
        DecisionError,
        DefinitionError,
        ExecutionError,
        FileError,
        IdempotencyError,
        KeyError,
        LimitError,
        ProjectError,
        ReleaseError,
        RunError,
        ScheduleError,
        SearchError,
        SessionError,
        WebhookError,
        WorkerError
    ];
    let mut written = BTreeSet::new();
    add_areas(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut written);
    assert_eq!(areas.iter().map(|(area, _)| (*area).to_owned()).collect::<BTreeSet<_>>(), written);
    let of_any_route = ApiError::VARIANTS.iter().filter(|code| **code != "area");
    let codes: BTreeSet<&str> = of_any_route.chain(areas.iter().flat_map(|(_, codes)| *codes)).copied().collect();
    assert_eq!(documented_errors().map(|(_, code)| code).collect::<BTreeSet<_>>(), codes);
}

/// Adds the names of all types in a folder that are errors of an area.
fn add_areas(folder: &Path, names: &mut BTreeSet<String>) {
    const IMPL: &str = "\nimpl AreaError for ";
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_areas(&path, names);
            continue;
        }
        let source = fs::read_to_string(&path).unwrap();
        names.extend(source.split(IMPL).skip(1).filter_map(|rest| Some(rest.split_once(' ')?.0.to_owned())));
    }
}

#[test]
fn tags_of_operations_are_described() {
    let document = crate::openapi();
    let described: BTreeSet<&str> =
        document["tags"].as_array().unwrap().iter().map(|tag| tag["name"].as_str().unwrap()).collect();
    let used = operations(&document).into_values().flat_map(|operation| operation["tags"].as_array().unwrap());
    assert_eq!(used.map(|tag| tag.as_str().unwrap()).collect::<BTreeSet<_>>(), described);
}
