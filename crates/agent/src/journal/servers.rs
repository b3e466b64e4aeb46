//! Tool servers that are unreachable during a run.
//!
//! The execution waits for a server with the backoff of class `transient`, counted per server, without spending
//! its own retries. After the last wait the model sees the error, and calls to the server fail at once for the
//! rest of the attempt. An answer of the server resets its count.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use longhaul_domain::{CallError, CallErrorKind, RetryCounters};
use longhaul_sdk::{Failure, FailureClass, FailureCode, Step};
use longhaul_store::history::journal::{Hash, JournalStep, StepState};
use longhaul_tools::{MissingTool, server_of};
use serde_json::json;

use super::{Agent, CompletedCall, Writer, call_record::CallBody, read_body};

/// Most missing tools that the event names.
const MAX_MISSING: usize = 50;

/// State of the run's tool servers.
#[derive(Debug, Default)]
pub struct Servers {
    /// Waits of each call since its server last answered. Calls of one reply wait together.
    waits: HashMap<String, BTreeMap<Hash, u32>>,
    /// Servers that are not called again in this attempt, with the reason.
    gone: HashMap<String, String>,
    /// The failure that the attempt waits for, and the delay.
    waiting: Option<(Failure, Duration)>,
}

impl Servers {
    /// Counts the waits of a recorded step.
    pub(super) fn note(&mut self, step: &JournalStep) -> Step<()> {
        let Some(server) = step.name.as_deref().and_then(server_of) else { return Ok(()) };
        let is_unreachable = step.failure_code.as_deref() == Some(FailureCode::TOOL_UNREACHABLE.as_str());
        if is_unreachable && step.state == StepState::Spent {
            *self.waits.entry(server.to_owned()).or_default().entry(step.key).or_default() += 1;
        } else if step.state == StepState::Live
            && self.waits.contains_key(server)
            && read_body::<CallBody>(step)?.has_run()
        {
            self.waits.remove(server);
        }
        Ok(())
    }

    fn waits(&self, server: &str) -> u32 {
        self.waits.get(server).and_then(|calls| calls.values().max()).copied().unwrap_or_default()
    }

    /// The error of a call whose server is not called again in this attempt.
    pub(crate) fn gone(&self, tool: &str) -> Option<CallError> {
        let reason = self.gone.get(server_of(tool)?)?;
        Some(CallError::new(CallErrorKind::Runtime, reason.clone()))
    }

    /// Returns true if the attempt ends to wait for the server of an unsent call. Otherwise the call no longer
    /// ends the run, and the model sees its error.
    pub(crate) fn is_awaited(&mut self, agent: &Agent, writer: &Writer, ran: &mut CompletedCall) -> bool {
        let is_unreachable = |failure: &Failure| failure.code == FailureCode::TOOL_UNREACHABLE;
        let Some(server) = server_of(&ran.ready.tool) else { return false };
        let Some(failure) = ran.outcome.ends_run.take_if(|failure| is_unreachable(failure)) else { return false };
        let had = RetryCounters { transient: self.waits(server), ..RetryCounters::default() };
        let delay = agent.retry.delay(FailureClass::Transient, had, None, writer.control.token.chance());
        ran.outcome.is_unsent = true;
        match delay.filter(|_| !self.gone.contains_key(server)) {
            Some(delay) => {
                ran.outcome.ends_run = Some(failure.clone());
                let waiting = self.waiting.get_or_insert((failure, delay));
                waiting.1 = waiting.1.min(delay);
                true
            }
            None => {
                self.gone.insert(server.to_owned(), failure.summary);
                false
            }
        }
    }

    /// The failure that ends the attempt to wait for a server, and the delay.
    pub fn waiting(&self) -> Option<(Failure, Duration)> {
        self.waiting.clone()
    }
}

impl Writer {
    /// Emits `tool_servers_starting`: the start may take long.
    ///
    /// # Errors
    /// An interrupt, or a failure of the store.
    pub async fn note_starting(&mut self, servers: Vec<&str>) -> Step<()> {
        self.event("tool_servers_starting", json!({ "servers": servers }));
        self.flush().await
    }

    /// Emits `tool_servers_started`, with the time it took.
    ///
    /// # Errors
    /// An interrupt, or a failure of the store.
    pub async fn note_started(&mut self, took: Duration) -> Step<()> {
        self.event("tool_servers_started", json!({ "took_ms": u64::try_from(took.as_millis()).unwrap_or(u64::MAX) }));
        self.flush().await
    }

    /// Emits `tools_missing`: tools that its servers do not offer though the agent allows them, or that do not fit.
    pub fn note_missing_tools(&mut self, missing: &[MissingTool]) {
        if missing.is_empty() {
            return;
        }
        let named = &missing[..missing.len().min(MAX_MISSING)];
        let tools: Vec<&str> = named.iter().map(|tool| tool.name.as_str()).collect();
        let reasons: BTreeMap<&str, &str> =
            named.iter().map(|tool| (tool.name.as_str(), tool.reason.as_str())).collect();
        self.event("tools_missing", json!({ "tools": tools, "reasons": reasons, "count": missing.len() }));
    }
}
