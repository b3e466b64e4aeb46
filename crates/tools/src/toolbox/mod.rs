//! The tools of one execution, and the single way to call them.
//!
//! The list shown to the model is stable: equal configurations give equal bytes, and a resumed execution uses
//! the list pinned in its journal. Bad arguments, errors, panics and timeouts do not fail a call but become
//! texts for the model.

mod open;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::FutureExt;
use longhaul_config::FilesConfig;
use longhaul_domain::{CallError, CallErrorKind, TenantId, cut};
use longhaul_guards::json_schema::{Schema, report};
use longhaul_sdk::{
    Failure, FailureCode, Reconciled, ToolCallContext, ToolEffect, ToolFailure, ToolFile, ToolOutput, ToolScratchpad,
    ToolSpec, numbers,
    spec::{CallerToolSpec, OnError},
};
use serde_json::{Value, json};
use tokio::time::Instant;

pub use open::ToolSources;

use super::{any_tool::AnyTool, outcome::CallOutcome};
use crate::{host::HostTool, mcp::MissingTool, serial::SerialTool};

/// Bytes of a tool's error in the summary of a run that it ends.
const MAX_SUMMARY_BYTES: usize = 512;
/// Smallest result limit, in bytes: the note about truncated bytes needs room.
const MIN_RESULT_BYTES: usize = 256;
/// Maximum files of one result, and maximum bytes of them all.
const MAX_FILES: usize = 20;
const MAX_FILE_BYTES: usize = FilesConfig::FILE_BYTES;
/// Tool names listed to a model that called an unknown tool.
const MAX_KNOWN_NAMES: usize = 100;

/// The tools of one execution.
#[derive(Clone)]
pub struct Toolbox {
    specs: Vec<ToolSpec>,
    tools: Vec<Callable>,
    index: HashMap<String, usize>,
    max_result_bytes: usize,
    dynamic: bool,
    missing: Vec<MissingTool>,
}

/// A tool of a service that checks the arguments itself, so that its answers go to the model unchanged.
#[async_trait]
pub trait ServiceTool: Send + Sync {
    /// The tool as shown to the model.
    fn spec(&self) -> ToolSpec;

    /// Limit for one call, with a margin: the service's own limit expires first.
    fn timeout(&self) -> Duration;

    /// Runs one call, once.
    async fn run(&self, arguments: Value, idempotency_key: &str) -> CallOutcome;
}

/// The implementation behind a tool.
#[derive(Clone)]
enum Answerer {
    Tool(Arc<dyn AnyTool>),
    Host(HostTool),
    Serial(SerialTool),
    /// A tool whose calls the caller runs.
    Caller(Arc<CallerToolSpec>),
    /// A tool that builds its outcomes itself.
    Service(Arc<dyn ServiceTool>),
}

#[derive(Clone)]
struct Callable {
    answerer: Answerer,
    arguments: Schema,
    timeout: Duration,
    on_error: OnError,
}

impl std::fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Toolbox").field("specs", &self.specs).field("dynamic", &self.dynamic).finish_non_exhaustive()
    }
}

impl Toolbox {
    /// Keeps the tools whose names pass, in their order.
    pub fn retain(&mut self, passes: impl Fn(&str) -> bool) {
        let (specs, tools) = (std::mem::take(&mut self.specs), std::mem::take(&mut self.tools));
        self.index.clear();
        for (spec, tool) in specs.into_iter().zip(tools).filter(|(spec, _)| passes(&spec.name)) {
            self.index.insert(spec.name.clone(), self.specs.len());
            self.specs.push(spec);
            self.tools.push(tool);
        }
    }

    /// The tools shown to the model, in order.
    #[must_use]
    pub fn specs(&self) -> &[ToolSpec] {
        &self.specs
    }

    /// The declared effect of the tool `name`; `ReadOnly` for an unknown tool, whose calls change nothing.
    #[must_use]
    pub fn effect(&self, name: &str) -> ToolEffect {
        self.index.get(name).map_or(ToolEffect::ReadOnly, |&at| self.specs[at].effect)
    }

    /// True if tool servers contributed to [`specs`](Self::specs), so that another listing may differ: the list
    /// must be pinned.
    #[must_use]
    pub fn is_dynamic(&self) -> bool {
        self.dynamic
    }

    /// Tools that its servers do not offer though the agent allows them, or that do not fit.
    pub fn missing(&self) -> &[MissingTool] {
        &self.missing
    }

    /// Longhaul's own tool of this name, if it is one.
    pub fn host(&self, name: &str) -> Option<HostTool> {
        match self.index.get(name).map(|&at| &self.tools[at].answerer) {
            Some(Answerer::Host(tool)) => Some(*tool),
            Some(Answerer::Tool(_) | Answerer::Serial(_) | Answerer::Caller(_) | Answerer::Service(_)) | None => None,
        }
    }

    /// The tool of this name, if its calls run one at a time.
    pub fn serial(&self, name: &str) -> Option<SerialTool> {
        match self.index.get(name).map(|&at| &self.tools[at].answerer) {
            Some(Answerer::Serial(tool)) => Some(*tool),
            Some(Answerer::Tool(_) | Answerer::Host(_) | Answerer::Caller(_) | Answerer::Service(_)) | None => None,
        }
    }

    /// Limit for one call of the tool; zero for an unknown tool.
    pub fn timeout(&self, name: &str) -> Duration {
        self.index.get(name).map_or(Duration::ZERO, |&at| self.tools[at].timeout)
    }

    /// The declaration of the tool of this name, if the caller runs its calls.
    pub fn caller_tool(&self, name: &str) -> Option<&CallerToolSpec> {
        match self.index.get(name).map(|&at| &self.tools[at].answerer) {
            Some(Answerer::Caller(tool)) => Some(tool),
            Some(Answerer::Tool(_) | Answerer::Host(_) | Answerer::Serial(_) | Answerer::Service(_)) | None => None,
        }
    }

    /// True if the agent loop answers the calls of the tool, and no worker runs them.
    pub fn is_answered_by_loop(&self, name: &str) -> bool {
        self.host(name).is_some() || self.caller_tool(name).is_some()
    }

    /// Runs one call. `arguments` is the model's text; empty means no arguments.
    ///
    /// Dropping the future stops waiting and sends a cancellation to a tool server.
    pub async fn call(
        &self,
        name: &str,
        arguments: &str,
        idempotency_key: &str,
        scratchpad: Arc<ToolScratchpad>,
    ) -> CallOutcome {
        match self.check(name, arguments) {
            Ok(args) => self.run(name, args, arguments, (idempotency_key, None), scratchpad).await,
            Err(error) => self.refuse(&error, name, arguments),
        }
    }

    /// Runs a call with arguments that fit its schema. `written` is the arguments' text, which an error repeats.
    pub async fn run(
        &self,
        name: &str,
        args: Value,
        written: &str,
        (idempotency_key, tenant): (&str, Option<TenantId>),
        scratchpad: Arc<ToolScratchpad>,
    ) -> CallOutcome {
        let callable = match self.callable(name) {
            Ok(callable) => callable,
            Err(error) => return self.refuse(&error, name, written),
        };
        if let Answerer::Service(tool) = &callable.answerer {
            return tool.run(args, idempotency_key).await;
        }
        let started = Instant::now();
        let context = ToolCallContext {
            idempotency_key: idempotency_key.into(),
            tenant_id: tenant.map(|tenant| tenant.to_string()),
            scratchpad,
            timeout: callable.timeout,
        };
        let mut outcome = match run(callable, name, args, context).await {
            Ok(output) => {
                let (text, files) = within_limits(output.text, output.files);
                CallOutcome { destination: output.destination, files, ..self.answer(name, text) }
            }
            Err((error, Some(failure))) => {
                CallOutcome { ends_run: Some(failure), ..self.refuse(&error, name, written) }
            }
            Err((error, None)) => self.fail(&error, name, written),
        };
        outcome.duration = started.elapsed();
        outcome
    }

    /// Asks the tool if a call that was running when a worker died has taken effect.
    pub async fn reconcile(&self, name: &str, args: Value, (idempotency_key, tenant): (&str, TenantId)) -> Reconciled {
        let Ok(Callable { answerer: Answerer::Tool(tool), timeout, .. }) = self.callable(name) else {
            return Reconciled::Unknown;
        };
        let context = ToolCallContext {
            idempotency_key: idempotency_key.into(),
            tenant_id: Some(tenant.to_string()),
            scratchpad: Arc::default(),
            timeout: *timeout,
        };
        let asked = AssertUnwindSafe(tool.reconcile(args, context)).catch_unwind();
        match tokio::time::timeout(*timeout, asked).await {
            Ok(Ok(reconciled)) => reconciled,
            Ok(Err(_)) | Err(_) => Reconciled::Unknown,
        }
    }

    /// Largest result shown to the model, in bytes.
    pub fn max_result_bytes(&self) -> usize {
        self.max_result_bytes
    }

    /// The outcome of a call whose result is `text`.
    pub fn answer(&self, name: &str, text: String) -> CallOutcome {
        let whole = storable(text);
        let (text, whole) = if whole.len() > self.max_result_bytes {
            (cut(&whole, self.max_result_bytes).into_owned(), Some(whole))
        } else {
            (whole, None)
        };
        CallOutcome {
            text,
            whole,
            destination: None,
            files: Vec::new(),
            kept: Vec::new(),
            error: None,
            is_unsent: false,
            ends_run: None,
            duration: Duration::ZERO,
            effect: self.effect(name),
            noted: None,
        }
    }

    /// The outcome of a call that failed or did not run.
    pub fn refuse(&self, error: &CallError, name: &str, written: &str) -> CallOutcome {
        let text = storable(error.to_text(name, written));
        CallOutcome { error: Some(error.kind), ..self.answer(name, text) }
    }

    /// The outcome of a call that ran and failed: it ends the run if the agent says so.
    pub fn fail(&self, error: &CallError, name: &str, written: &str) -> CallOutcome {
        let on_error = self.index.get(name).map_or(OnError::Tell, |&at| self.tools[at].on_error);
        let ends_run = (on_error == OnError::Fail).then(|| {
            Failure::of(
                FailureCode::TOOL_FAILED,
                format!("tool `{name}` failed: {}", cut(&error.message, MAX_SUMMARY_BYTES)),
            )
        });
        CallOutcome { ends_run, ..self.refuse(error, name, written) }
    }

    /// Parses a call's arguments and checks them against the tool's schema.
    fn check(&self, name: &str, arguments: &str) -> Result<Value, CallError> {
        let callable = self.callable(name)?;
        let args: Value = if arguments.trim().is_empty() {
            json!({})
        } else {
            serde_json::from_str(arguments)
                .map_err(|error| structural(format!("the arguments are not valid JSON: {error}")))?
        };
        callable.check(&args)?;
        Ok(args)
    }

    /// Checks a call's arguments against the tool's schema.
    pub fn check_value(&self, name: &str, arguments: &Value) -> Result<(), CallError> {
        self.callable(name)?.check(arguments)
    }

    /// JSON Schema of the tool's arguments; `None` for an unknown tool.
    pub fn parameters(&self, name: &str) -> Option<&Value> {
        self.index.get(name).map(|&at| &self.specs[at].parameters)
    }

    fn callable(&self, name: &str) -> Result<&Callable, CallError> {
        if let Some(&at) = self.index.get(name) {
            return Ok(&self.tools[at]);
        }
        let known: Vec<_> = self.specs.iter().take(MAX_KNOWN_NAMES).map(|spec| spec.name.as_str()).collect();
        Err(structural(format!("there is no tool named `{}`", cut(name, 128)))
            .with_details(json!({ "known_tools": known })))
    }
}

impl Callable {
    fn check(&self, arguments: &Value) -> Result<(), CallError> {
        numbers::check(arguments).map_err(|error| structural(error.with_path()))?;
        match report::violations(&self.arguments, arguments) {
            None => Ok(()),
            Some(found) => Err(structural("the arguments do not fit the tool's schema".into())
                .with_details(json!({ "violations": found.listed, "more_violations": found.more }))),
        }
    }
}

/// The files within the limits of one result; the text describes the others.
fn within_limits(mut text: String, files: Vec<ToolFile>) -> (String, Vec<ToolFile>) {
    let (mut kept, mut bytes) = (Vec::new(), 0_usize);
    for file in files {
        if kept.len() < MAX_FILES && bytes.saturating_add(file.bytes.len()) <= MAX_FILE_BYTES {
            bytes += file.bytes.len();
            kept.push(file);
            continue;
        }
        let (name, media_type, length) = (cut(&file.name, 255), cut(&file.media_type, 100), file.bytes.len());
        let limits = format!("one result may have {MAX_FILES} files and {MAX_FILE_BYTES} bytes of them");
        text.push_str(&format!("\n[file {name}, {media_type}, {length} bytes: not kept, because {limits}]"));
    }
    (text, kept)
}

fn structural(message: String) -> CallError {
    CallError::new(CallErrorKind::Structural, message)
}

/// Runs a checked call within its timeout and catches panics of the tool.
async fn run(
    callable: &Callable,
    name: &str,
    args: Value,
    context: ToolCallContext,
) -> Result<ToolOutput, (CallError, Option<Failure>)> {
    let runtime = |message: String| CallError::new(CallErrorKind::Runtime, message);
    let tool = match &callable.answerer {
        Answerer::Tool(tool) => tool,
        // The agent loop handles host tools, serial ones and those of the caller, and `Toolbox::run` tools of services.
        Answerer::Host(_) | Answerer::Serial(_) | Answerer::Caller(_) | Answerer::Service(_) => {
            return Err((runtime("the tool is not available here".into()), None));
        }
    };
    let call = AssertUnwindSafe(tool.call(args, context)).catch_unwind();
    match tokio::time::timeout(callable.timeout, call).await {
        Ok(Ok(Ok(output))) => Ok(output),
        Ok(Ok(Err(ToolFailure::Reported(message)))) => Err((runtime(message), None)),
        Ok(Ok(Err(ToolFailure::OutcomeUnknown(message)))) => {
            Err((CallError::new(CallErrorKind::OutcomeUnknown, message), None))
        }
        Ok(Ok(Err(ToolFailure::EndsRun(failure)))) => Err((runtime(failure.summary.clone()), Some(failure))),
        Ok(Err(_panic)) => {
            // A panic message may hold arguments, so only the panic hook gets it.
            tracing::error!(tool.name = name, "tool panicked; the model is told");
            Err((runtime("the tool failed unexpectedly".into()), None))
        }
        Err(_elapsed) => {
            tool.timed_out();
            let seconds = callable.timeout.as_secs();
            let message = format!("the tool did not answer within {seconds} s; it may still have taken effect");
            Err((CallError::new(CallErrorKind::Timeout, message), None))
        }
    }
}

/// Postgres text cannot hold U+0000, and a tool's output is stored.
fn storable(text: String) -> String {
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }
}
