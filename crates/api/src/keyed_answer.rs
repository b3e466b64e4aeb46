//! A request under an `Idempotency-Key` while its handler acts: what is kept with its answer.

use std::{collections::BTreeSet, sync::Arc};

use axum::http::StatusCode;
use longhaul_store::tenants::{
    api_keys::Scope,
    kept_answers::{Claim, KeptAnswer},
};
use parking_lot::Mutex;
use serde_json::{Map, Value};
use uuid::Uuid;

/// Most ids of an answer by which erasure finds it.
const MAX_SUBJECTS: usize = 200;
const MAX_SUBJECT_BYTES: usize = 200;

/// The claim of a request under way, and the scopes that its handler asked for. In the request's extensions.
#[derive(Debug, Clone)]
pub(crate) struct KeyedAnswer {
    pub(crate) claim: Arc<Claim>,
    scopes: Arc<Mutex<BTreeSet<Scope>>>,
    subjects: Arc<[String]>,
}

impl KeyedAnswer {
    /// `path` has the parameters of the request's path.
    pub(crate) fn new(claim: Claim, path: &[String]) -> Self {
        let mut subjects = Vec::new();
        path.iter().for_each(|value| add_subject(value, &mut subjects));
        Self { claim: Arc::new(claim), scopes: Arc::default(), subjects: subjects.into() }
    }

    /// Notes a scope that the handler asks for.
    pub(crate) fn note(&self, scope: Scope) {
        self.scopes.lock().insert(scope);
    }

    /// The answer to keep, with the scopes asked for so far.
    pub(crate) fn answer(&self, status: StatusCode, body: Vec<u8>) -> KeptAnswer {
        let mut subjects = self.subjects.to_vec();
        ids_of(&serde_json::from_slice(&body).unwrap_or_default(), &mut subjects);
        KeptAnswer {
            status: status.as_u16(),
            body: Some(body),
            scopes: self.scopes.lock().iter().copied().collect(),
            subjects,
        }
    }
}

/// Adds the ids that an answer names.
fn ids_of(answer: &Value, subjects: &mut Vec<String>) {
    match answer {
        Value::Array(items) => items.iter().for_each(|item| ids_of(item, subjects)),
        Value::Object(members) => ids_of_members(members, subjects),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn ids_of_members(members: &Map<String, Value>, subjects: &mut Vec<String>) {
    for (name, value) in members {
        match value.as_str() {
            Some(text) if name == "id" || name.ends_with("_id") => add_subject(text, subjects),
            Some(_) => {}
            None => ids_of(value, subjects),
        }
    }
}

/// Adds a subject; of an id the UUID without its prefix, as it is stored.
fn add_subject(text: &str, subjects: &mut Vec<String>) {
    let id = text.rsplit('_').next().and_then(|id| Uuid::parse_str(id).ok());
    let subject = id.map_or_else(|| text.to_owned(), |id| id.to_string());
    if subjects.len() < MAX_SUBJECTS && subject.len() <= MAX_SUBJECT_BYTES && !subjects.contains(&subject) {
        subjects.push(subject);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn subjects_are_ids_at_any_depth_without_prefixes() {
        let id = "8a6e0804-2bd0-4672-b79d-d97027f9071a";
        let answer =
            json!({ "id": format!("sess_{}", id.replace('-', "")), "tasks": [{ "execution_id": "x", "name": "no" }] });
        let mut subjects = Vec::new();
        ids_of(&answer, &mut subjects);
        assert_eq!(subjects, [id, "x"]);
    }
}
