//! Checks answers against the OpenAPI document, so that it describes every status and every body that a test sees.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use jsonschema::Validator;
use parking_lot::Mutex;
use reqwest::Method;
use serde_json::{Value, json};

use super::api::Answer;

static DOCUMENT: LazyLock<Value> = LazyLock::new(longhaul_api::openapi);
/// Compiled schemas of bodies, by their references.
static COMPILED: LazyLock<Mutex<HashMap<String, Arc<Validator>>>> = LazyLock::new(Mutex::default);

/// Panics if the document does not describe the answer. Answers of paths and methods without an operation pass.
pub(crate) fn check(method: &Method, path: &str, answer: &Answer) {
    let path = path.split('?').next().unwrap_or_default();
    let Some(operation) = operation(method, path) else { return };
    let (id, status) = (&operation["operationId"], answer.status);
    let response = &operation["responses"][status.to_string()];
    assert!(response.is_object(), "{id} has no answer {status}: {}", answer.text);
    let media_type = answer.header("content-type").split(';').next().unwrap_or_default();
    let schema = &response["content"][media_type]["schema"];
    let Some(reference) = schema["$ref"].as_str().filter(|_| media_type.ends_with("json")) else {
        assert!(!media_type.ends_with("json"), "{id} has no body {media_type} with {status}: {}", answer.text);
        return;
    };
    // A caller asked for less (`Prefer: return=minimal`).
    if answer.header("preference-applied").contains("return=minimal") {
        return;
    }
    let violations: Vec<String> =
        compiled(reference).iter_errors(&answer.body).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(violations.is_empty(), "{id} {status} is no {reference}: {violations:?}\n{}", answer.text);
}

/// The operation with this method and path; of several, the one whose path has the fewest parameters.
fn operation(method: &Method, path: &str) -> Option<&'static Value> {
    let paths = DOCUMENT["paths"].as_object()?;
    let fits = |template: &str| {
        let (given, known) = (path.split('/').collect::<Vec<_>>(), template.split('/').collect::<Vec<_>>());
        given.len() == known.len()
            && given.iter().zip(known).all(|(given, known)| known.starts_with('{') || *given == known)
    };
    let (_, item) = paths
        .iter()
        .filter(|(template, _)| fits(template))
        .min_by_key(|(template, _)| template.matches('{').count())?;
    item.get(method.as_str().to_lowercase())
}

fn compiled(reference: &str) -> Arc<Validator> {
    let mut compiled = COMPILED.lock();
    let validator = compiled.entry(reference.to_owned()).or_insert_with(|| {
        let schema = json!({ "$ref": reference, "components": DOCUMENT["components"] });
        Arc::new(jsonschema::validator_for(&schema).unwrap())
    });
    Arc::clone(validator)
}
