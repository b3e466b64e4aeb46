//! Shared by tests of whole executions: tools and validators with scripted behaviour that record their inputs.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use longhaul_sdk::{
    DefinitionSpec, JsonSchema, Tool, ToolCallContext, ToolEffect, ToolFailure, ToolOutput, Validation, Validator,
    ValidatorResponse, async_trait,
    spec::{ToolRef, ValidatorRef},
};
use longhaul_testkit::model::Captured;
use serde::Deserialize;
use serde_json::Value;

use crate::support::fleet::agent;

/// Arguments of [`TestTool`]: any value.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(crate) struct Anything {
    /// Passed to the tool's behaviour.
    #[serde(default)]
    pub(crate) value: Value,
}

type Behaviour = dyn Fn(usize, Value, &ToolCallContext) -> Result<ToolOutput, ToolFailure> + Send + Sync;

/// A tool whose results come from its behaviour, which receives the number of the call, from 0.
#[derive(Clone)]
pub(crate) struct TestTool {
    name: &'static str,
    effect: ToolEffect,
    behaviour: Arc<Behaviour>,
    count: Arc<AtomicUsize>,
    keys: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl TestTool {
    pub(crate) fn new(
        name: &'static str,
        effect: ToolEffect,
        behaviour: impl Fn(usize, Value, &ToolCallContext) -> Result<ToolOutput, ToolFailure> + Send + Sync + 'static,
    ) -> Self {
        Self { name, effect, behaviour: Arc::new(behaviour), count: Arc::default(), keys: Arc::default() }
    }

    /// A tool that answers `done` and records its argument for the validators.
    pub(crate) fn recording(name: &'static str, effect: ToolEffect) -> Self {
        Self::new(name, effect, move |_, value, context| {
            context.scratchpad.record(name, value);
            Ok("done".into())
        })
    }

    /// Number of runs.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Number of runs by idempotency key.
    pub(crate) fn keys(&self) -> BTreeMap<String, usize> {
        self.keys.lock().unwrap().clone()
    }
}

#[async_trait]
impl Tool for TestTool {
    type Args = Anything;

    fn name(&self) -> &str {
        self.name
    }

    fn description(&self) -> &str {
        "Does as the test says."
    }

    fn effect(&self) -> ToolEffect {
        self.effect
    }

    async fn call(&self, args: Anything, context: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
        *self.keys.lock().unwrap().entry(context.idempotency_key.clone()).or_default() += 1;
        let number = self.count.fetch_add(1, Ordering::SeqCst);
        (self.behaviour)(number, args.value, &context)
    }
}

/// Answer and scratchpad that a validator was given.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Seen {
    pub(crate) response: String,
    pub(crate) scratchpad: BTreeMap<String, Value>,
}

type Judgement = dyn Fn(usize, &Validation<'_>) -> ValidatorResponse + Send + Sync;

/// A validator with a scripted judgement that records its inputs.
#[derive(Clone)]
pub(crate) struct TestValidator {
    name: &'static str,
    judgement: Arc<Judgement>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl TestValidator {
    pub(crate) fn new(
        name: &'static str,
        judgement: impl Fn(usize, &Validation<'_>) -> ValidatorResponse + Send + Sync + 'static,
    ) -> Self {
        Self { name, judgement: Arc::new(judgement), seen: Arc::default() }
    }

    /// A validator with the same response for every answer.
    pub(crate) fn always(name: &'static str, response: ValidatorResponse) -> Self {
        Self::new(name, move |_, _| response.clone())
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

#[async_trait]
impl Validator for TestValidator {
    fn name(&self) -> &str {
        self.name
    }

    async fn validate(&self, validation: Validation<'_>) -> ValidatorResponse {
        let number = {
            let mut seen = self.seen.lock().unwrap();
            seen.push(Seen { response: validation.response.to_owned(), scratchpad: validation.scratchpad.snapshot() });
            seen.len() - 1
        };
        (self.judgement)(number, &validation)
    }
}

/// The definition `key` of agent `a`, with these validators.
pub(crate) fn definition(key: &str, validators: &[&str]) -> DefinitionSpec {
    let validators = validators.iter().map(|&name| ValidatorRef::Name(name.into())).collect();
    DefinitionSpec { validators, ..DefinitionSpec::new(key, "a") }
}

/// The agent `a` with these tools.
pub(crate) fn agent_with(tools: &[&str]) -> longhaul_sdk::AgentSpec {
    longhaul_sdk::AgentSpec { tools: tools.iter().map(|&name| ToolRef::Name(name.into())).collect(), ..agent("a") }
}

/// Role and text of every message of a request.
pub(crate) fn said(request: &Captured) -> Vec<(String, String)> {
    let text = |message: &Value| message["content"].as_str().unwrap_or_default().to_owned();
    let role = |message: &Value| message["role"].as_str().unwrap_or_default().to_owned();
    request.messages().iter().map(|message| (role(message), text(message))).collect()
}
