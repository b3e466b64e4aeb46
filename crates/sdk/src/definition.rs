//! Execution definitions in Rust: typed input, validators, and the base `run()` of the specification.
//!
//! A definition states its prompt, its conditions for an answer, and its limits:
//!
//! ```
//! use longhaul_sdk::{DefinitionSpec, ExecutionDefinition, FailureCode, JsonSchema, RegisteredDefinition, async_trait};
//! use serde::Deserialize;
//! use serde_json::{Value, json};
//!
//! #[derive(Deserialize, JsonSchema)]
//! #[schemars(crate = "longhaul_sdk::schemars")]
//! #[serde(deny_unknown_fields)]
//! struct Ticket {
//!     text: String,
//! }
//!
//! struct Summary;
//!
//! #[async_trait]
//! impl ExecutionDefinition for Summary {
//!     type Input = Ticket;
//!     const KEY: &'static str = "ticket-summary";
//!     const AGENT_KEY: &'static str = "summariser";
//!     const NAME: &'static str = "Ticket summary";
//!     const MAX_RETRIES: u32 = 1;
//!
//!     fn prompt(&self) -> Option<String> {
//!         Some("Summarise: {{ input.text }}".into())
//!     }
//!
//!     fn output_schema(&self) -> Option<Value> {
//!         Some(json!({
//!             "type": "object",
//!             "properties": {"summary": {"type": "string", "maxLength": 200}},
//!             "required": ["summary"],
//!         }))
//!     }
//!
//!     fn failure_codes(&self) -> Vec<FailureCode> {
//!         FailureCode::custom("NO_TICKET").into_iter().collect()
//!     }
//!
//!     fn configure(&self, spec: &mut DefinitionSpec) {
//!         spec.active_timeout_seconds = 600;
//!     }
//! }
//!
//! let published = RegisteredDefinition::new(Summary).spec;
//! assert_eq!(published.input_schema["required"], json!(["text"]));
//! assert_eq!(published.failure_codes, ["NO_TICKET"]);
//! assert_eq!((published.max_retries, published.active_timeout_seconds), (1, 600));
//! ```

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    answer,
    conversation::Conversation,
    failure::{Failure, FailureCode, Step, StepError},
    numbers,
    result::ExecutionResult,
    spec::{DefinitionSpec, GENERIC_FEEDBACK, Runner, ValidatorRef},
    validator::{IsValidJson, Validator},
};

/// An execution type written in Rust. Only [`KEY`](Self::KEY), [`AGENT_KEY`](Self::AGENT_KEY), [`NAME`](Self::NAME)
/// and the input type are required; `run()` is the validator loop and is rarely overridden.
///
/// ```
/// use longhaul_sdk::{ExecutionDefinition, IsValidJson, JsonSchema, RegisteredDefinition, Validator};
/// use serde::Deserialize;
///
/// #[derive(Deserialize, JsonSchema)]
/// #[schemars(crate = "longhaul_sdk::schemars")]
/// struct Ticket {
///     text: String,
/// }
///
/// struct Summary;
///
/// impl ExecutionDefinition for Summary {
///     type Input = Ticket;
///     const KEY: &'static str = "ticket-summary";
///     const AGENT_KEY: &'static str = "summariser";
///     const NAME: &'static str = "Ticket summary";
/// }
///
/// let published = RegisteredDefinition::new(Summary).spec;
/// assert_eq!(published.validators[0].name(), IsValidJson.name());
/// assert_eq!(published.max_retries, 3);
/// ```
#[async_trait]
pub trait ExecutionDefinition: Send + Sync + 'static {
    /// The input. Its JSON Schema validates submissions; put `#[serde(deny_unknown_fields)]` on it to refuse extra
    /// fields.
    type Input: DeserializeOwned + JsonSchema + Send + Sync;

    /// Unique slug; `[a-z0-9._-]{1,64}`.
    const KEY: &'static str;
    /// The agent that runs it. Several definitions may share one.
    const AGENT_KEY: &'static str;
    /// Display name.
    const NAME: &'static str;
    /// Description for people.
    const DESCRIPTION: Option<&'static str> = None;
    /// Maximum number of corrections: `n` allows `n + 1` validated answers.
    const MAX_RETRIES: u32 = 3;

    /// Validators in order; the first failing one decides the next step.
    fn validators(&self) -> Vec<Arc<dyn Validator>> {
        vec![Arc::new(IsValidJson)]
    }

    /// Failure codes of the definition, in addition to the built-in ones.
    fn failure_codes(&self) -> Vec<FailureCode> {
        Vec::new()
    }

    /// The schema the answer must satisfy.
    fn output_schema(&self) -> Option<Value> {
        None
    }

    /// The first user message, a minijinja template over `input`. When absent, the input as JSON.
    fn prompt(&self) -> Option<String> {
        None
    }

    /// Changes fields of the record that have no method here, such as timeouts and retries.
    fn configure(&self, _spec: &mut DefinitionSpec) {}

    /// Produces one answer. Called once per validated answer: after a correction the validator's feedback is
    /// already the conversation's next message.
    ///
    /// ```
    /// use longhaul_sdk::{Conversation, ExecutionDefinition, JsonSchema, Step, async_trait};
    /// # #[derive(serde::Deserialize, JsonSchema)]
    /// # #[schemars(crate = "longhaul_sdk::schemars")]
    /// # struct Topic {
    /// #     name: String,
    /// # }
    /// # struct Report;
    ///
    /// #[async_trait]
    /// impl ExecutionDefinition for Report {
    ///     type Input = Topic;
    ///     const KEY: &'static str = "report";
    ///     const AGENT_KEY: &'static str = "analyst";
    ///     const NAME: &'static str = "Report";
    ///
    ///     async fn execute(&self, input: &Topic, conversation: &mut dyn Conversation) -> Step<String> {
    ///         conversation.ask().await?;
    ///         conversation.say(&format!("Now write the report on {} as JSON.", input.name));
    ///         conversation.ask().await
    ///     }
    /// }
    /// # use std::sync::Arc;
    /// # use longhaul_sdk::{StepError, ToolScratchpad, Validator, ValidatorResponse};
    /// # struct Echo(String, ToolScratchpad);
    /// # #[async_trait]
    /// # impl Conversation for Echo {
    /// #     fn say(&mut self, message: &str) {
    /// #         self.0 = message.into();
    /// #     }
    /// #     async fn ask(&mut self) -> Step<String> {
    /// #         Ok(self.0.clone())
    /// #     }
    /// #     async fn judge(&mut self, _: &[Arc<dyn Validator>], _: &str) -> Step<Option<ValidatorResponse>> {
    /// #         Ok(None)
    /// #     }
    /// #     async fn correct(&mut self, _: &str) -> Step<()> {
    /// #         Ok(())
    /// #     }
    /// #     fn scratchpad(&self) -> &ToolScratchpad {
    /// #         &self.1
    /// #     }
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), StepError> {
    /// #     let mut echo = Echo(String::new(), ToolScratchpad::default());
    /// #     let answer = Report.execute(&Topic { name: "rivers".into() }, &mut echo).await?;
    /// #     assert_eq!(answer, "Now write the report on rivers as JSON.");
    /// #     Ok(())
    /// # }
    /// ```
    async fn execute(&self, _input: &Self::Input, conversation: &mut dyn Conversation) -> Step<String> {
        conversation.ask().await
    }

    /// The validator loop of the specification, [`run_validated`], over [`execute`](Self::execute).
    async fn run(
        &self,
        definition: &DefinitionSpec,
        validators: &[Arc<dyn Validator>],
        input: &Self::Input,
        conversation: &mut dyn Conversation,
    ) -> Step<ExecutionResult> {
        run_validated(definition, validators, &Typed { definition: self, input }, conversation).await
    }
}

/// A way to produce an answer. [`run_validated`] calls it once per validated answer.
#[async_trait]
pub trait Execute: Sync {
    /// Produces one answer.
    async fn execute(&self, conversation: &mut dyn Conversation) -> Step<String>;
}

struct Typed<'a, D: ExecutionDefinition + ?Sized> {
    definition: &'a D,
    input: &'a D::Input,
}

#[async_trait]
impl<D: ExecutionDefinition + ?Sized> Execute for Typed<'_, D> {
    async fn execute(&self, conversation: &mut dyn Conversation) -> Step<String> {
        self.definition.execute(self.input, conversation).await
    }
}

/// Asks, validates and corrects until an answer passes, a validator stops the run, or the corrections are used up.
///
/// `max_retries = n` allows up to `n + 1` validated answers, then one unvalidated turn for the failure summary.
///
/// # Errors
/// Interrupts and failures of the conversation, except a failure of the summary turn: its code stays
/// `max_retries_exceeded`.
pub async fn run_validated(
    definition: &DefinitionSpec,
    validators: &[Arc<dyn Validator>],
    answer: &dyn Execute,
    conversation: &mut dyn Conversation,
) -> Step<ExecutionResult> {
    for attempt in 0..=definition.max_retries {
        let response = answer.execute(conversation).await?;
        let Some(verdict) = conversation.judge(validators, &response).await? else {
            return Ok(ExecutionResult::Success { output: answer::output(&response) });
        };
        if !verdict.retry_needed {
            let code = verdict.failure_code.unwrap_or(FailureCode::VALIDATION_FAILED);
            return Ok(ExecutionResult::Failure { code: declared(definition, code), summary: verdict.feedback });
        }
        if attempt < definition.max_retries {
            let feedback = verdict.feedback.filter(|text| !text.is_empty());
            conversation.correct(feedback.as_deref().unwrap_or(GENERIC_FEEDBACK)).await?;
        }
    }
    conversation.say(&definition.failure_summary_prompt);
    let summary = match conversation.ask().await {
        Ok(text) => Some(text),
        Err(StepError::Failed(_)) => None,
        Err(interrupt @ StepError::Interrupt(_)) => return Err(interrupt),
    };
    Ok(ExecutionResult::Failure { code: FailureCode::MAX_RETRIES_EXCEEDED, summary })
}

/// A validator's own code counts only if the definition declares it: codes are metric labels and part of the API
/// contract.
fn declared(definition: &DefinitionSpec, code: FailureCode) -> FailureCode {
    let known =
        FailureCode::BUILT_IN.contains(&code) || definition.failure_codes.iter().any(|own| own == code.as_str());
    if known { code } else { FailureCode::VALIDATION_FAILED }
}

/// A definition without its input type, as held by registries and run by workers.
#[async_trait]
pub trait AnyDefinition: Send + Sync {
    /// Runs the definition on an input that is valid against its schema.
    async fn run(
        &self,
        definition: &DefinitionSpec,
        validators: &[Arc<dyn Validator>],
        input: &Value,
        conversation: &mut dyn Conversation,
    ) -> Step<ExecutionResult>;
}

/// A definition written in Rust, with the record it publishes.
#[derive(Clone)]
pub struct RegisteredDefinition {
    /// The record that the API lists and validates against.
    pub spec: DefinitionSpec,
    /// Its validators, in order.
    pub validators: Vec<Arc<dyn Validator>>,
    /// Its code.
    pub run: Arc<dyn AnyDefinition>,
}

impl fmt::Debug for RegisteredDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisteredDefinition").field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl RegisteredDefinition {
    /// Erases the type of `definition`. This is the only place where that happens.
    pub fn new<D: ExecutionDefinition>(definition: D) -> Self {
        let validators = definition.validators();
        let mut spec = DefinitionSpec {
            key: D::KEY.into(),
            agent_key: D::AGENT_KEY.into(),
            name: D::NAME.into(),
            description: D::DESCRIPTION.map(Into::into),
            input_schema: schemars::schema_for!(D::Input).to_value(),
            output_schema: definition.output_schema(),
            prompt: definition.prompt(),
            validators: validators.iter().map(|v| ValidatorRef::Name(v.name().into())).collect(),
            max_retries: D::MAX_RETRIES,
            failure_codes: definition.failure_codes().iter().map(ToString::to_string).collect(),
            ..DefinitionSpec::new(D::KEY, D::AGENT_KEY)
        };
        spec.runner = Runner::Rust;
        definition.configure(&mut spec);
        Self { spec, validators, run: Arc::new(Erased(definition)) }
    }
}

struct Erased<D>(D);

#[async_trait]
impl<D: ExecutionDefinition> AnyDefinition for Erased<D> {
    async fn run(
        &self,
        definition: &DefinitionSpec,
        validators: &[Arc<dyn Validator>],
        input: &Value,
        conversation: &mut dyn Conversation,
    ) -> Step<ExecutionResult> {
        // Fails only on a worker whose input type changed without a new version of its definition.
        let input: D::Input = numbers::typed(input).map_err(|error| {
            Failure::permanent(
                FailureCode::INVALID_DEFINITION,
                format!("the stored input does not fit the registered input type: {error}"),
            )
        })?;
        self.0.run(definition, validators, &input, conversation).await
    }
}

/// The `run()` of every declarative definition: ask, validate, correct.
#[derive(Debug, Clone, Copy, Default)]
pub struct Declarative;

#[async_trait]
impl Execute for Declarative {
    async fn execute(&self, conversation: &mut dyn Conversation) -> Step<String> {
        conversation.ask().await
    }
}

#[async_trait]
impl AnyDefinition for Declarative {
    async fn run(
        &self,
        definition: &DefinitionSpec,
        validators: &[Arc<dyn Validator>],
        _input: &Value,
        conversation: &mut dyn Conversation,
    ) -> Step<ExecutionResult> {
        run_validated(definition, validators, self, conversation).await
    }
}
