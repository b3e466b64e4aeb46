//! `plan_project`: puts the plan of the project that a session is about (docs/adr/0053-projects.md).

use longhaul_domain::{CallError, CallErrorKind, Plan};
use longhaul_sdk::Step;
use longhaul_store::{
    database::retry::patiently,
    projects::{Edited, NewPlan},
};
use serde_json::json;

use crate::{
    Agent,
    journal::{Writer, from_store},
    ready_call::{HostToolAnswer, ReadyCall},
};

/// Puts the plan of the call as the plan of the session's project.
///
/// # Errors
/// An interrupt, or a failure of the store.
pub(super) async fn call(agent: &Agent, journal: &Writer, call: &ReadyCall) -> Step<HostToolAnswer> {
    let refuse = |kind, reason: String| Ok(call.refused(&agent.toolbox, &CallError::new(kind, reason)));
    let mut arguments = call.arguments.clone();
    let seen = arguments.as_object_mut().and_then(|members| members.remove("version")).and_then(|seen| seen.as_i64());
    let seen = seen.map(|seen| i32::try_from(seen).unwrap_or(i32::MAX));
    let plan: Plan = match serde_json::from_value(arguments) {
        Ok(plan) => plan,
        Err(error) => return refuse(CallErrorKind::Structural, error.to_string()),
    };
    let store = journal.deps.store.clone();
    let project = match journal.scope.session {
        Some(session) => patiently(store.trouble(), || store.project_of_session(session)).await.map_err(from_store)?,
        None => None,
    };
    let Some((tenant, id)) = project else {
        return refuse(CallErrorKind::Runtime, "this conversation is about no project".to_owned());
    };
    // A model names the project's agents and no others, and approves nothing.
    let new = NewPlan { plan, seen, agents: Vec::new(), author: None, may_approve: false };
    let edited = patiently(store.trouble(), || store.put_plan(tenant, id, new.clone()));
    let reason = match edited.await.map_err(from_store)? {
        Edited::Done { version, status } => {
            return Ok(call.answered(&agent.toolbox, json!({ "plan": version, "project": status }).to_string()));
        }
        Edited::Invalid(problems) => {
            let each: Vec<String> =
                problems.iter().map(|problem| format!("{} {}", problem.path, problem.message)).collect();
            return refuse(CallErrorKind::Structural, each.join("; "));
        }
        Edited::TaskStarted { key, status } => format!("the task `{key}` is `{status}` and cannot be changed"),
        Edited::NeedsApprover => {
            "only a person may change a plan that was approved, or remove a gate that is ahead".to_owned()
        }
        Edited::Refused(status) => format!("the project is `{status}`, which does not allow another plan"),
        Edited::Stale(version) => format!("the project has plan {version} by now, which is not the one that you saw"),
        Edited::NotFound => "this conversation is about no project".to_owned(),
    };
    refuse(CallErrorKind::Runtime, reason)
}
