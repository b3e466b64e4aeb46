//! The place of a request within a durable run: headers `Longhaul-Run`, `Longhaul-Attempt` and `Longhaul-Step`, or the
//! path `/runs/{run}/attempts/{attempt}/v1/…`.
//!
//! The same content in another attempt of a run is the same call, and answered from the record. Within an attempt the
//! next one begins only when the answer before was delivered to its last byte (docs/design/runs.md).

use std::time::Duration;

use axum::{
    RequestPartsExt,
    extract::{FromRequestParts, RawPathParams},
    http::{HeaderMap, request::Parts},
};
use longhaul_domain::{ExecutionId, LeaseToken, RunId};
use longhaul_store::runs::{NewRun, RunRequest};
use longhaul_wire::Fault;
use uuid::Uuid;

use super::refused::{Answer, Refused};
use crate::{auth::Principal, state::ApiState};

/// Life of a run that its first call makes, as the longest of an execution.
const DEADLINE: Duration = longhaul_domain::MAX_DEADLINE;
const MAX_RUN: usize = 200;
const MAX_ATTEMPT: usize = 100;
const MAX_STEP: usize = 200;
/// Beginning of the keys of runs that hold the calls of an execution.
const EXECUTION: &str = "execution:";

/// Key of the run that holds the model calls of an execution of a remote worker.
pub(crate) fn run_of(execution: ExecutionId) -> String {
    format!("{EXECUTION}{execution}")
}

/// True for a key that only an execution's own run has.
pub(crate) fn is_of_execution(key: &str) -> bool {
    key.starts_with(EXECUTION)
}

/// What a request says of its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InRun {
    pub(super) key: String,
    pub(super) attempt: String,
    /// Name of the call that its caller pins it to.
    pub(super) step: Option<String>,
    /// True for an SDK's own retry.
    pub(super) is_retry: bool,
    /// Execution of a remote worker whose calls these are, and the token of its lease.
    pub(super) held: Option<(ExecutionId, LeaseToken)>,
}

/// The run of a request; `None` outside of one.
#[derive(Debug, Clone)]
pub(crate) struct MaybeInRun(pub(super) Option<InRun>);

impl FromRequestParts<ApiState> for MaybeInRun {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &ApiState) -> Result<Self, Refused> {
        let of_path: Vec<(String, String)> = match parts.extract::<RawPathParams>().await {
            Ok(params) => params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            Err(_) => Vec::new(),
        };
        let named = |name: &str| of_path.iter().find(|(of, _)| of == name).map(|(_, value)| value.clone());
        read(&parts.headers, named("run"), named("attempt")).map(Self)
    }
}

fn read(headers: &HeaderMap, run: Option<String>, attempt: Option<String>) -> Answer<Option<InRun>> {
    let key = run.map_or_else(|| text(headers, "longhaul-run", MAX_RUN), |run| Ok(Some(run)))?;
    let attempt = attempt.map_or_else(|| text(headers, "longhaul-attempt", MAX_ATTEMPT), |of| Ok(Some(of)))?;
    let step = text(headers, "longhaul-step", MAX_STEP)?;
    let retries = headers.get("x-stainless-retry-count").and_then(|count| count.to_str().ok()?.parse::<u32>().ok());
    let is_retry = retries.is_some_and(|count| count > 0);
    if let Some((execution, token)) = held(headers)? {
        if key.is_some() || attempt.is_some() {
            let why = "is of a program, and Longhaul-Execution of a worker: send one of them";
            return Err(Fault::invalid("Longhaul-Run", why).into());
        }
        let (key, attempt) = (run_of(execution), token.to_string());
        return Ok(Some(InRun { key, attempt, step, is_retry, held: Some((execution, token)) }));
    }
    match (key, attempt) {
        (None, None) if step.is_none() => Ok(None),
        (None, _) => Err(Fault::invalid("Longhaul-Run", "is missing: an attempt or a step belongs to a run").into()),
        // Counted over a whole run, a restarted program's first call would be a second one.
        (Some(_), None) => {
            let why = "is missing: send an id of this start of the program, such as a UUID, with each of its calls";
            Err(Fault::invalid("Longhaul-Attempt", why).into())
        }
        (Some(key), Some(attempt)) => {
            bounded("Longhaul-Run", &key, MAX_RUN)?;
            bounded("Longhaul-Attempt", &attempt, MAX_ATTEMPT)?;
            if is_of_execution(&key) {
                let why = format!("must not begin with `{EXECUTION}`");
                return Err(Fault::invalid("Longhaul-Run", why).into());
            }
            Ok(Some(InRun { key, attempt, step, is_retry, held: None }))
        }
    }
}

/// The execution of a remote worker and the token of its lease.
fn held(headers: &HeaderMap) -> Answer<Option<(ExecutionId, LeaseToken)>> {
    let named = |name: &'static str| {
        let Some(text) = text(headers, name, 40)? else { return Answer::Ok(None) };
        let id = Uuid::parse_str(&text).map_err(|_| Fault::invalid(name, "is no id"))?;
        Ok(Some(id))
    };
    match (named("longhaul-execution")?, named("longhaul-lease")?) {
        (None, None) => Ok(None),
        (Some(execution), Some(token)) => Ok(Some((ExecutionId(execution), LeaseToken(token)))),
        (Some(_), None) => Err(Fault::invalid("Longhaul-Lease", "is missing: send the token of the lease").into()),
        (None, Some(_)) => Err(Fault::invalid("Longhaul-Execution", "is missing: send the execution's id").into()),
    }
}

fn text(headers: &HeaderMap, name: &'static str, max: usize) -> Answer<Option<String>> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let value = value.to_str().map_err(|_| Fault::invalid(name, "is not printable ASCII"))?;
    bounded(name, value, max)?;
    Ok(Some(value.to_owned()))
}

fn bounded(name: &str, value: &str, max: usize) -> Answer<()> {
    let fits = (1..=max).contains(&value.len()) && !value.chars().any(char::is_control);
    if fits { Ok(()) } else { Err(Fault::invalid(name, format!("must have 1 to {max} printable characters")).into()) }
}

/// A call's place in its run.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) run: RunId,
    pub(super) of: InRun,
    pub(super) content: [u8; 32],
}

impl Place {
    /// The place of a request with that content. A run that does not exist begins now.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub(super) async fn find(state: &ApiState, principal: &Principal, of: InRun, content: [u8; 32]) -> Answer<Self> {
        let tenant = principal.tenant();
        let deadline = match of.held {
            None => DEADLINE,
            Some((execution, token)) => match state.store.time_of_held(tenant, execution, token).await? {
                Some(left) => left,
                None => return Err(Fault::invalid("Longhaul-Lease", "belongs to another, or has ended").into()),
            },
        };
        let known = (tenant, of.key.clone());
        if let Some(run) = state.wire_runs.get(&known) {
            return Ok(Self { run, of, content });
        }
        let new = NewRun {
            tenant,
            key: of.key.clone(),
            budget: None,
            deadline,
            made_by: principal.key_id(),
            execution: of.held.map(|(execution, _)| execution),
        };
        let (run, _) = state.store.put_run(&new).await?;
        state.wire_runs.insert(known, run.id);
        Ok(Self { run: run.id, of, content })
    }

    /// The same place in the run that its key names now: the one that this process knew was pruned or erased.
    ///
    /// # Errors
    /// As those of [`Self::find`].
    pub(super) async fn anew(self, state: &ApiState, principal: &Principal) -> Answer<Self> {
        state.wire_runs.remove(&(principal.tenant(), self.of.key.clone()));
        Self::find(state, principal, self.of, self.content).await
    }

    pub(super) fn request(&self) -> RunRequest<'_> {
        RunRequest {
            run: self.run,
            attempt: &self.of.attempt,
            content: self.content,
            step: self.of.step.as_deref(),
            is_retry: self.of.is_retry,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&'static str, &'static str)]) -> Result<Option<InRun>, Option<String>> {
        let headers = pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        read(&headers, None, None).map_err(|refused| refused.0.param)
    }

    #[test]
    fn run_needs_an_attempt() {
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&[("longhaul-run", "k")]), Err(Some("Longhaul-Attempt".into())));
        assert_eq!(of(&[("longhaul-attempt", "a")]), Err(Some("Longhaul-Run".into())));
        assert_eq!(of(&[("longhaul-step", "s")]), Err(Some("Longhaul-Run".into())));
        let run = of(&[("longhaul-run", "k"), ("longhaul-attempt", "a"), ("x-stainless-retry-count", "1")]);
        let expected = InRun { key: "k".into(), attempt: "a".into(), step: None, is_retry: true, held: None };
        assert_eq!(run, Ok(Some(expected)));
        let first = of(&[("longhaul-run", "k"), ("longhaul-attempt", "a"), ("x-stainless-retry-count", "0")]);
        assert!(first.is_ok_and(|run| run.is_some_and(|run| !run.is_retry)));
    }
}
