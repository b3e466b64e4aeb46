//! Tools: the actions of an agent besides answering.
//!
//! A worker that takes over after a crash may find a call that was running. For a tool with side effects, the worker
//! then calls [`Tool::reconcile`], which looks the call up by its idempotency key:
//!
//! ```
//! use std::{collections::HashMap, sync::Mutex};
//!
//! use longhaul_sdk::{JsonSchema, Reconciled, Tool, ToolCallContext, ToolFailure, ToolOutput, async_trait};
//! use serde::Deserialize;
//!
//! #[derive(Deserialize, JsonSchema)]
//! #[schemars(crate = "longhaul_sdk::schemars")]
//! struct Payment {
//!     euros: u32,
//! }
//!
//! /// Payments by idempotency key, in place of a payment service.
//! #[derive(Default)]
//! struct Pay(Mutex<HashMap<String, u32>>);
//!
//! #[async_trait]
//! impl Tool for Pay {
//!     type Args = Payment;
//!
//!     fn name(&self) -> &str {
//!         "pay"
//!     }
//!
//!     fn description(&self) -> &str {
//!         "Pays an amount in euros."
//!     }
//!
//!     async fn call(&self, args: Payment, context: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
//!         self.0.lock()?.insert(context.idempotency_key, args.euros);
//!         Ok("paid".into())
//!     }
//!
//!     async fn reconcile(&self, _args: Payment, context: ToolCallContext) -> Reconciled {
//!         match self.0.lock() {
//!             Ok(payments) if payments.contains_key(&context.idempotency_key) => Reconciled::Done("paid".into()),
//!             Ok(_) => Reconciled::NotDone,
//!             Err(_) => Reconciled::Unknown,
//!         }
//!     }
//! }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), ToolFailure> {
//! #     let context = ToolCallContext {
//! #         idempotency_key: "key-1".into(),
//! #         tenant_id: None,
//! #         scratchpad: Default::default(),
//! #         timeout: std::time::Duration::from_secs(1),
//! #     };
//!
//! let pay = Pay::default();
//! assert_eq!(pay.reconcile(Payment { euros: 5 }, context.clone()).await, Reconciled::NotDone);
//! pay.call(Payment { euros: 5 }, context.clone()).await?;
//! assert_eq!(pay.reconcile(Payment { euros: 5 }, context).await, Reconciled::Done("paid".into()));
//! # Ok(())
//! # }
//! ```

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{failure::Failure, scratchpad::ToolScratchpad};

/// The effect of running a tool twice. It decides the handling of a call that may have run before a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolEffect {
    /// The tool changes nothing: the call is repeated.
    ReadOnly,
    /// Calls with the same idempotency key take effect once: the call is repeated with the same key.
    Idempotent,
    /// Any other tool: the call is never repeated blindly; the model is told `outcome_unknown`.
    #[default]
    SideEffect,
}

/// A tool as the model sees it, and the properties that the worker needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The name the model calls; `[a-zA-Z0-9_-]{1,64}`.
    pub name: String,
    /// Description for the model.
    pub description: String,
    /// JSON Schema of the arguments; an object.
    pub parameters: Value,
    /// The effect of running the tool twice.
    pub effect: ToolEffect,
    /// JSON Schema of the result that the model writes itself; set for a latent tool. No code runs for its calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latent_output: Option<Value>,
    /// True if the parameters have the strict form that providers can enforce: every property is required, and no
    /// other is allowed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_strict: bool,
    /// What was changed of a tool server's tool so that model APIs take it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mended: Option<MendedTool>,
}

/// Names of a tool server's tool as the server knows them, where models know others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MendedTool {
    /// Name of the tool.
    pub name: String,
    /// Names of properties of its arguments, at any depth, by the names that models know.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
}

/// The data that a tool may use while it runs.
#[derive(Debug, Clone)]
pub struct ToolCallContext {
    /// The same for every repetition of this call; pass it on to the system that the tool changes.
    pub idempotency_key: String,
    /// Id of the calling execution's tenant; `None` for a call outside an execution.
    pub tenant_id: Option<String>,
    /// The scratchpad that validators will read.
    pub scratchpad: Arc<ToolScratchpad>,
    /// Time left for the call; the worker stops waiting after it.
    pub timeout: Duration,
}

/// The result of a call, for the model.
///
/// ```
/// use longhaul_sdk::ToolOutput;
///
/// let output = ToolOutput::from("the invoice has no date").at("†state.rejected");
/// assert_eq!(output.destination.as_deref(), Some("†state.rejected"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutput {
    /// The text of the result; beyond the agent's limit it is cut and marked as cut.
    pub text: String,
    /// One of the places that the call offers for its result, such as `†state.rejected`; the first when absent.
    pub destination: Option<String>,
    /// Files that the call leaves: artifacts of the execution, at most 20 of 20 MiB each. A model that takes files of
    /// their type sees them; any other reads their names and types.
    pub files: Vec<ToolFile>,
}

/// A file that a call leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolFile {
    /// Name under which the file is downloaded.
    pub name: String,
    /// Media type, such as `image/png`. That of PNG, JPEG, WebP and PDF is read from the bytes.
    pub media_type: String,
    pub bytes: Vec<u8>,
}

impl ToolOutput {
    /// Selects one of the places that the call offers for its result.
    #[must_use]
    pub fn at(mut self, destination: impl Into<String>) -> Self {
        self.destination = Some(destination.into());
        self
    }

    /// Adds a file.
    ///
    /// ```
    /// use longhaul_sdk::ToolOutput;
    ///
    /// let output = ToolOutput::from("drawn").with_file("plot.svg", "image/svg+xml", b"<svg/>");
    /// assert_eq!(output.files[0].name, "plot.svg");
    /// ```
    #[must_use]
    pub fn with_file(
        mut self,
        name: impl Into<String>,
        media_type: impl Into<String>,
        bytes: impl Into<Vec<u8>>,
    ) -> Self {
        self.files.push(ToolFile { name: name.into(), media_type: media_type.into(), bytes: bytes.into() });
        self
    }
}

/// A tool's knowledge of a call that may have run before a crash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reconciled {
    /// The call ran; this is its result.
    Done(ToolOutput),
    /// The call did not run: it runs now, with the same key.
    NotDone,
    /// The outcome cannot be determined. The model is told `outcome_unknown`.
    Unknown,
}

impl<T: Into<String>> From<T> for ToolOutput {
    fn from(text: T) -> Self {
        Self { text: text.into(), destination: None, files: Vec::new() }
    }
}

/// The failure of a call.
///
/// `?` reports any error that implements `Display`; the other variants are named:
///
/// ```
/// use longhaul_sdk::{Failure, FailureCode, ToolFailure};
///
/// fn quantity(text: &str) -> Result<u32, ToolFailure> {
///     Ok(text.parse::<u32>()?)
/// }
/// assert_eq!(quantity("two"), Err(ToolFailure::Reported("invalid digit found in string".into())));
///
/// fn open(is_locked: bool) -> Result<(), ToolFailure> {
///     if is_locked {
///         return Err(ToolFailure::EndsRun(Failure::of(FailureCode::TOOL_FAILED, "the account is locked")));
///     }
///     Ok(())
/// }
/// assert!(matches!(open(true), Err(ToolFailure::EndsRun(_))));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum ToolFailure {
    /// The model is told and continues: the ordinary case.
    Reported(String),
    /// The call may have taken effect: the model is told `outcome_unknown`, and the ledger records `unknown`.
    OutcomeUnknown(String),
    /// The run cannot continue; the failure's class decides the retry (`tool_error`: two).
    EndsRun(Failure),
}

impl<T: std::fmt::Display> From<T> for ToolFailure {
    fn from(error: T) -> Self {
        Self::Reported(error.to_string())
    }
}

/// A tool written in Rust, with typed arguments.
///
/// ```
/// use std::time::Duration;
///
/// use longhaul_sdk::{JsonSchema, Tool, ToolCallContext, ToolEffect, ToolFailure, ToolOutput, async_trait};
/// use serde::Deserialize;
///
/// #[derive(Deserialize, JsonSchema)]
/// #[schemars(crate = "longhaul_sdk::schemars")]
/// struct Currency {
///     /// ISO 4217 code.
///     code: String,
/// }
///
/// struct ExchangeRate;
///
/// #[async_trait]
/// impl Tool for ExchangeRate {
///     type Args = Currency;
///
///     fn name(&self) -> &str {
///         "exchange_rate"
///     }
///
///     fn description(&self) -> &str {
///         "Returns how many euros one unit of a currency is worth."
///     }
///
///     fn effect(&self) -> ToolEffect {
///         ToolEffect::ReadOnly
///     }
///
///     async fn call(&self, args: Currency, context: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
///         let rate = match args.code.as_str() {
///             "USD" => 0.9,
///             "GBP" => 1.2,
///             other => return Err(ToolFailure::Reported(format!("there is no rate for `{other}`"))),
///         };
///         context.scratchpad.record(self.name(), rate); // For validators.
///         Ok(rate.to_string().into())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), ToolFailure> {
/// let context = ToolCallContext {
///     idempotency_key: "key-1".into(),
///     tenant_id: None,
///     scratchpad: Default::default(),
///     timeout: Duration::from_secs(1),
/// };
/// let output = ExchangeRate.call(Currency { code: "USD".into() }, context.clone()).await?;
/// assert_eq!(output.text, "0.9");
/// assert!(ExchangeRate.call(Currency { code: "XYZ".into() }, context).await.is_err());
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait Tool: Send + Sync + 'static {
    /// The arguments; the model is shown their JSON Schema.
    type Args: DeserializeOwned + JsonSchema + Send;

    /// The name the model calls; `[a-zA-Z0-9_-]{1,64}`, unique in a worker.
    fn name(&self) -> &str;

    /// Description for the model.
    fn description(&self) -> &str;

    /// The effect of running the tool twice; `side_effect` by default.
    fn effect(&self) -> ToolEffect {
        ToolEffect::SideEffect
    }

    /// Runs one call.
    async fn call(&self, args: Self::Args, context: ToolCallContext) -> Result<ToolOutput, ToolFailure>;

    /// Finds out, by `context.idempotency_key`, if a call that was running when a worker died has taken effect.
    /// Called only for tools whose effect is [`ToolEffect::SideEffect`]. It must change nothing.
    async fn reconcile(&self, _args: Self::Args, _context: ToolCallContext) -> Reconciled {
        Reconciled::Unknown
    }
}
