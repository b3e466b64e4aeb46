//! A tool server as one agent uses it: its list of tools, and calls of them.
//!
//! In a circle with `pool.rs`: a pool makes the handle of a server, and the handle takes its connections from the pool.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use longhaul_sdk::{
    Failure, FailureCode, ToolCallContext, ToolEffect, ToolFailure, ToolOutput, ToolSpec, spec::McpServerSpec,
};
use longhaul_shared::{
    domain::cut,
    json_schema::{SchemaCache, report},
};
use rmcp::{
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, JsonObject, MetaObject, PaginatedRequestParams,
        RequestMetaObject, Tool as ListedTool,
    },
    service::ServiceError,
};
use serde_json::Value;

use super::{
    connection::Connection,
    name::full_name,
    pool::McpPool,
    pool_settings::{AllowedNetworks, SlotKey},
    result,
    session::{FailedRequest, ended, said},
};
use crate::any_tool::AnyTool;

/// Tools accepted from one server; models degrade long before.
const MAX_TOOLS: usize = 512;
/// Pages of one listing, so that a server cannot page forever.
const MAX_PAGES: usize = 64;
/// Maximum bytes of a tool's description; the rest is cut.
const MAX_DESCRIPTION_BYTES: usize = 16 * 1024;
/// Maximum bytes of a tool's schema; a tool with a larger one is left out.
const MAX_SCHEMA_BYTES: usize = 128 * 1024;
/// Bytes of an error's text. Results are truncated by the toolbox to the agent's limit.
const MAX_ERROR_BYTES: usize = 2_048;

/// One of an agent's tool servers.
#[derive(Clone)]
pub struct McpServer(Arc<Inner>);

struct Inner {
    pool: McpPool,
    key: SlotKey,
    name: String,
    spec: McpServerSpec,
    reach: AllowedNetworks,
    timeout: Duration,
}

impl McpServer {
    pub(super) fn new(
        pool: McpPool,
        name: &str,
        spec: &McpServerSpec,
        reach: AllowedNetworks,
        default_timeout: Duration,
    ) -> Self {
        let timeout = spec.timeout_seconds.map_or(default_timeout, |s| Duration::from_secs(u64::from(s.max(1))));
        let key = SlotKey::of(spec, reach);
        Self(Arc::new(Inner { pool, key, name: name.into(), spec: spec.clone(), reach, timeout }))
    }

    /// Lists the tools, sorted by name, that the agent allows and a model can be shown; and the full names of
    /// allowed tools that are not among them.
    ///
    /// # Errors
    /// `tool_unreachable` if the server does not answer.
    pub async fn tools(&self, schemas: &SchemaCache) -> Result<(Vec<McpTool>, Vec<String>), Failure> {
        let listed = match tokio::time::timeout(self.0.timeout, self.list()).await {
            Ok(listed) => listed?,
            Err(_) => {
                self.0.pool.suspect(&self.0.key);
                return Err(self.unreachable("it did not list its tools in time"));
            }
        };
        let mut tools: Vec<_> = listed.into_iter().filter_map(|tool| self.accept(tool, schemas)).collect();
        tools.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
        let is_missing = |allowed: &&String| !tools.iter().any(|tool| tool.name == **allowed);
        let missing: Vec<String> = self.0.spec.allow.iter().filter(is_missing).map(|tool| self.told(tool)).collect();
        if !missing.is_empty() {
            tracing::warn!(tool.server = self.0.name, "tools are allowed that the server does not offer: {missing:?}");
        }
        Ok((tools, missing))
    }

    /// Returns a tool from its pinned spec, without contacting the server.
    pub fn tool(&self, name: &str, spec: ToolSpec) -> McpTool {
        McpTool { server: self.clone(), name: name.into(), spec }
    }

    async fn list(&self) -> Result<Vec<ListedTool>, Failure> {
        let mut tools = Vec::new();
        let mut cursor = None;
        let connection = self.connect().await?;
        for _ in 0..MAX_PAGES {
            let mut params = PaginatedRequestParams::default();
            params.cursor = cursor;
            let page = match connection.peer().list_tools(Some(params)).await {
                Ok(page) => page,
                Err(error) => {
                    self.0.pool.discard(&self.0.key, &connection).await;
                    let reason = if let ServiceError::TransportSend(transport) = &error {
                        said(transport)
                    } else {
                        error.to_string()
                    };
                    let reason = connection.secrets.scrub(reason);
                    return Err(self.unreachable(&cut(&reason, MAX_ERROR_BYTES)));
                }
            };
            tools.extend(page.tools);
            cursor = page.next_cursor;
            if cursor.is_none() || tools.len() > MAX_TOOLS {
                break;
            }
        }
        if tools.len() > MAX_TOOLS || cursor.is_some() {
            tracing::warn!(
                tool.server = self.0.name,
                "tool server lists more than {MAX_TOOLS} tools; the rest is left out"
            );
            tools.truncate(MAX_TOOLS);
        }
        Ok(tools)
    }

    /// Converts a listed tool. `None` if the agent does not allow it, or, with a warning, if its name or schema
    /// is unusable.
    fn accept(&self, tool: ListedTool, schemas: &SchemaCache) -> Option<McpTool> {
        let server = &self.0.name;
        if !self.0.spec.allow.is_empty() && !self.0.spec.allow.iter().any(|allowed| *allowed == tool.name) {
            return None;
        }
        let skip = |reason: &str| {
            tracing::warn!(tool.server = server, tool.name = %cut(&tool.name, 128), "tool left out: {reason}");
        };
        let Some(name) = full_name(server, &tool.name) else {
            skip("its full name is not 1 to 64 of `a-z A-Z 0-9 _ -`");
            return None;
        };
        let mut parameters = Value::Object(tool.input_schema.as_ref().clone());
        if let Some(argument) = self.0.spec.idempotency_arguments.get(tool.name.as_ref()) {
            hide(&mut parameters, argument);
        }
        if parameters.to_string().len() > MAX_SCHEMA_BYTES {
            skip("its schema is too large");
            return None;
        }
        if let Err(reason) = report::describes_object(&parameters).and_then(|()| schemas.get(&parameters)) {
            skip(&format!("its schema cannot be used: {reason}"));
            return None;
        }
        let description = cut(tool.description.as_deref().unwrap_or_default(), MAX_DESCRIPTION_BYTES).into_owned();
        let effect = self.effect_of(&tool);
        let spec = ToolSpec { name, description, parameters, effect, latent_output: None, is_strict: false };
        Some(McpTool { server: self.clone(), name: tool.name.into_owned(), spec })
    }

    /// The effect declared by the agent, else hinted by a trusted server, else `SideEffect`.
    fn effect_of(&self, tool: &ListedTool) -> ToolEffect {
        if let Some(&effect) = self.0.spec.effects.get(tool.name.as_ref()) {
            return effect;
        }
        let Some(hints) = tool.annotations.as_ref().filter(|_| self.0.spec.trusted) else {
            return ToolEffect::SideEffect;
        };
        if hints.read_only_hint == Some(true) {
            ToolEffect::ReadOnly
        } else if hints.idempotent_hint == Some(true) {
            ToolEffect::Idempotent
        } else {
            ToolEffect::SideEffect
        }
    }

    /// The full name of an allowed tool, for messages. It may be invalid, since the agent's author wrote it.
    fn told(&self, tool: &str) -> String {
        format!("mcp__{}__{}", self.0.name, cut(tool, 128))
    }

    async fn connect(&self) -> Result<Arc<Connection>, Failure> {
        let Inner { pool, key, name, spec, reach, .. } = &*self.0;
        pool.connect(key, name, spec, *reach).await.map_err(|reason| self.unreachable(&reason))
    }

    fn unreachable(&self, reason: &str) -> Failure {
        let summary = format!("tool server `{}` could not be reached: {reason}", self.0.name);
        Failure::of(FailureCode::TOOL_UNREACHABLE, summary)
    }
}

/// One tool of a server.
#[derive(Clone)]
pub struct McpTool {
    server: McpServer,
    /// The tool's name on the server.
    name: String,
    spec: ToolSpec,
}

/// Errors of one request.
enum RequestError {
    /// The server answered with an error. The connection is intact.
    Refused(String),
    /// Nothing was sent.
    Unsent(String),
    /// The connection broke during the call.
    Lost(String),
}

impl McpTool {
    pub fn timeout(&self) -> Duration {
        self.server.0.timeout
    }

    fn may_have_run(&self, reason: &str) -> ToolFailure {
        let lost = format!("the connection to the tool server was lost while the call ran ({reason})");
        match self.spec.effect {
            ToolEffect::ReadOnly => ToolFailure::Reported(lost),
            ToolEffect::Idempotent | ToolEffect::SideEffect => {
                ToolFailure::OutcomeUnknown(format!("{lost}; it may have taken effect"))
            }
        }
    }

    async fn request(
        &self,
        connection: &Connection,
        params: CallToolRequestParams,
    ) -> Result<CallToolResult, RequestError> {
        // Dropping this future sends `notifications/cancelled`.
        match connection.peer().call_tool_once(params).await {
            Ok(CallToolResponse::Complete(result)) => Ok(result),
            Ok(CallToolResponse::InputRequired(_)) => {
                Err(RequestError::Refused("the tool asks for further input, which an execution cannot give".into()))
            }
            Ok(_) => Err(RequestError::Refused("the tool answered with a task, which is not supported".into())),
            Err(error) => Err(classify(&error)),
        }
    }
}

/// Removes a property from a schema, because Longhaul fills it in itself.
fn hide(parameters: &mut Value, property: &str) {
    if let Some(properties) = parameters.get_mut("properties").and_then(Value::as_object_mut) {
        properties.remove(property);
    }
    if let Some(required) = parameters.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| name != property);
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "not exhaustive outside rmcp; the rest is an answer of no use to us"
)]
fn classify(error: &ServiceError) -> RequestError {
    match error {
        ServiceError::McpError(error) => {
            RequestError::Refused(format!("the server answered error {}: {}", error.code.0, error.message))
        }
        ServiceError::TransportSend(transport) => match ended(transport) {
            FailedRequest::Unsent => RequestError::Unsent(said(transport)),
            FailedRequest::Refused(reason) => RequestError::Refused(reason),
            FailedRequest::Lost => RequestError::Lost(said(transport)),
        },
        ServiceError::TransportClosed => RequestError::Lost("the connection closed".into()),
        ServiceError::UnexpectedResponse => {
            RequestError::Refused("the server answered something else than a result".into())
        }
        _ => RequestError::Refused(error.to_string()),
    }
}

#[async_trait]
impl AnyTool for McpTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    async fn call(&self, args: Value, context: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
        let Value::Object(mut args) = args else { return Err("the arguments are not an object".into()) };
        if let Some(argument) = self.server.0.spec.idempotency_arguments.get(&self.name) {
            args.insert(argument.clone(), Value::from(context.idempotency_key.clone()));
        }
        let meta = JsonObject::from_iter([("idempotencyKey".to_owned(), Value::from(context.idempotency_key))]);
        let mut params = CallToolRequestParams::new(self.name.clone()).with_arguments(args);
        params.meta = Some(RequestMetaObject(MetaObject(meta)));

        let mut lost: Option<String> = None;
        loop {
            let connection = match (self.server.connect().await, &lost) {
                (Ok(connection), _) => connection,
                // Nothing was sent, so the whole run can be retried later.
                (Err(failure), None) => return Err(ToolFailure::EndsRun(failure)),
                // A retried run would call under another idempotency key.
                (Err(_), Some(reason)) => return Err(self.may_have_run(reason)),
            };
            let scrub = |text: String| cut(&connection.secrets.scrub(text), MAX_ERROR_BYTES).into_owned();
            match self.request(&connection, params.clone()).await {
                Ok(result) => {
                    if result.is_error != Some(true) {
                        let output = result::to_output(result);
                        return Ok(ToolOutput { text: connection.secrets.scrub(output.text), ..output });
                    }
                    let text = connection.secrets.scrub(result::to_text(result));
                    return Err(match text.is_empty() {
                        false => ToolFailure::Reported(text),
                        true => "the tool failed without saying why".into(),
                    });
                }
                Err(RequestError::Refused(reason)) => return Err(ToolFailure::Reported(scrub(reason))),
                Err(RequestError::Unsent(reason)) => {
                    self.server.0.pool.discard(&self.server.0.key, &connection).await;
                    return Err(match lost {
                        None => ToolFailure::EndsRun(self.server.unreachable(&scrub(reason))),
                        Some(lost) => self.may_have_run(&lost),
                    });
                }
                Err(RequestError::Lost(reason)) => {
                    self.server.0.pool.discard(&self.server.0.key, &connection).await;
                    let reason = scrub(reason);
                    // The call has one effect per idempotency key, so repeat it once if its answer was lost.
                    if self.spec.effect == ToolEffect::SideEffect || lost.is_some() {
                        return Err(self.may_have_run(&reason));
                    }
                    lost = Some(reason);
                }
            }
        }
    }

    fn timed_out(&self) {
        self.server.0.pool.suspect(&self.server.0.key);
    }
}
