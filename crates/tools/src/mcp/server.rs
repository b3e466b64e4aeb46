//! A tool server as one agent uses it: its list of tools, and calls of them.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use async_trait::async_trait;
use longhaul_domain::cut;
use longhaul_guards::json_schema::SchemaCache;
use longhaul_sdk::{
    Failure, FailureCode, ToolCallContext, ToolEffect, ToolFailure, ToolOutput, ToolSpec, spec::McpServerSpec,
};
use rmcp::{
    model::{
        CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, JsonObject, ListToolsRequest,
        MetaObject, PaginatedRequestParams, RequestMetaObject,
    },
    service::ServiceError,
};
use serde_json::Value;

use super::{
    asking::ask,
    connection::Connection,
    fit::{Fitted, Listed, SHOWN, fit, has_fit_name, restore},
    name::{PREFIX, check_server},
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
/// Bytes of the reason why a tool is left out.
const MAX_REASON_BYTES: usize = 300;
/// Bytes of an error's text. Results are truncated by the toolbox to the agent's limit.
const MAX_ERROR_BYTES: usize = 2_048;

/// One of an agent's tool servers.
#[derive(Clone)]
pub(crate) struct McpServer(Arc<Inner>);

struct Inner {
    pool: McpPool,
    key: SlotKey,
    name: String,
    spec: McpServerSpec,
    reach: AllowedNetworks,
    timeout: Duration,
}

impl McpServer {
    /// An agent's server, validated but not contacted. Calls have `default_timeout` unless the server's spec sets one.
    ///
    /// # Errors
    /// As [`check_server`].
    pub(crate) fn new(
        pool: McpPool,
        name: &str,
        spec: &McpServerSpec,
        reach: AllowedNetworks,
        default_timeout: Duration,
    ) -> Result<Self, String> {
        check_server(name, spec)?;
        let timeout = spec.timeout_seconds.map_or(default_timeout, |s| Duration::from_secs(u64::from(s.max(1))));
        let key = SlotKey::of(spec, reach);
        Ok(Self(Arc::new(Inner { pool, key, name: name.into(), spec: spec.clone(), reach, timeout })))
    }

    /// Lists the tools, sorted by name, that the agent allows and a model can be shown, and those that are left out:
    /// the server does not offer them, or no mending makes them fit.
    ///
    /// # Errors
    /// `tool_unreachable` if the server does not answer.
    pub(crate) async fn tools(&self, schemas: &SchemaCache) -> Result<(Vec<McpTool>, Vec<MissingTool>), Failure> {
        let listed = match tokio::time::timeout(self.0.timeout, self.list()).await {
            Ok(listed) => listed?,
            Err(_) => {
                self.0.pool.suspect(&self.0.key);
                return Err(self.unreachable("it did not list its tools in time"));
            }
        };
        let mut missing = Vec::new();
        let mut allowed = self.allowed(listed, &mut missing);
        // Names that need no mending come first, so that a mended one takes none of them.
        allowed.sort_by_key(|tool| !has_fit_name(&self.0.name, &tool.name));
        let mut names = BTreeSet::new();
        let mut tools = Vec::new();
        for listed in allowed {
            match self.accept(&listed, &names, schemas) {
                Ok(tool) => {
                    names.insert(tool.spec.name.clone());
                    tools.push(tool);
                }
                Err(reason) => missing.push(self.missing(&listed.name, &reason)),
            }
        }
        tools.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
        if !missing.is_empty() {
            tracing::warn!(tool.server = self.0.name, "tools of the server are left out: {missing:?}");
        }
        Ok((tools, missing))
    }

    /// The entries of a list that the agent allows. What is no tool, and allowed tools that are not listed, are added
    /// to `missing`.
    fn allowed(&self, entries: Vec<Value>, missing: &mut Vec<MissingTool>) -> Vec<Listed> {
        let allow = &self.0.spec.allow;
        let (mut listed, mut names) = (Vec::new(), BTreeSet::new());
        for (at, entry) in entries.into_iter().enumerate() {
            match Listed::read(entry) {
                Ok(tool) if !names.insert(tool.name.clone()) => {
                    missing.push(self.missing(&tool.name, "the server lists it twice: the first one counts"));
                }
                Ok(tool) if allow.is_empty() || allow.contains(&tool.name) => listed.push(tool),
                Ok(_) => {}
                Err(reason) if allow.is_empty() => {
                    missing.push(self.missing(&format!("entry {} of its list", at + 1), reason));
                }
                Err(_) => {}
            }
        }
        let is_absent = |allowed: &&String| !listed.iter().any(|tool| tool.name == **allowed);
        missing.extend(allow.iter().filter(is_absent).map(|tool| self.missing(tool, "the server does not list it")));
        listed
    }

    /// Returns a tool from its pinned spec, without contacting the server. `name` is the server's own, unless it was
    /// mended.
    pub(crate) fn tool(&self, name: &str, spec: ToolSpec) -> McpTool {
        let name = spec.mended.as_ref().map_or(name, |mended| &mended.name).to_owned();
        McpTool { server: self.clone(), name, spec }
    }

    /// The entries of the server's list, as they are.
    async fn list(&self) -> Result<Vec<Value>, Failure> {
        let mut tools = Vec::new();
        let (mut cursor, mut seen): (Option<String>, BTreeSet<String>) = (None, BTreeSet::new());
        let mut unique = BTreeSet::new();
        let connection = self.connect().await?;
        for _ in 0..MAX_PAGES {
            let mut params = PaginatedRequestParams::default();
            params.cursor.clone_from(&cursor);
            let request = ListToolsRequest::with_param(params);
            let mut page = match ask(connection.peer(), ClientRequest::ListToolsRequest(request)).await {
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
            // Not by index: the answer may be no object.
            let Some(Value::Array(listed)) = page.get_mut("tools").map(Value::take) else {
                return Err(self.unreachable("its list of tools is no list"));
            };
            tools.extend(listed.into_iter().filter(|entry| unique.insert(entry.to_string())));
            // A cursor that was there before would list the same pages again.
            let next = page["nextCursor"].as_str().filter(|next| !next.is_empty()).map(str::to_owned);
            cursor = next.filter(|next| seen.insert(next.clone()));
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

    /// Makes a listed tool fit. `taken` holds the full names of the others.
    ///
    /// # Errors
    /// Its schema is unusable, or its name is taken.
    fn accept(&self, tool: &Listed, taken: &BTreeSet<String>, schemas: &SchemaCache) -> Result<McpTool, String> {
        let Fitted { name, description, mut parameters, mended } = fit(&self.0.name, tool, taken)?;
        if let Some(argument) = self.0.spec.idempotency_arguments.get(&tool.name) {
            let known = mended.as_ref().and_then(|mended| mended.properties.iter().find(|(_, own)| *own == argument));
            hide(&mut parameters, known.map_or(argument, |(known, _)| known));
        }
        if parameters.to_string().len() > MAX_SCHEMA_BYTES {
            return Err("its schema is too large".into());
        }
        schemas.get(&parameters).map_err(|reason| format!("its schema cannot be used: {reason}"))?;
        let description = cut(&description, MAX_DESCRIPTION_BYTES).into_owned();
        let effect = self.effect_of(tool);
        let spec = ToolSpec { name, description, parameters, effect, latent_output: None, is_strict: false, mended };
        Ok(self.tool(&tool.name, spec))
    }

    /// The effect declared by the agent, else hinted by a trusted server, else `SideEffect`.
    fn effect_of(&self, tool: &Listed) -> ToolEffect {
        if let Some(&effect) = self.0.spec.effects.get(&tool.name) {
            return effect;
        }
        if !self.0.spec.trusted {
            return ToolEffect::SideEffect;
        }
        if tool.annotations["readOnlyHint"] == true {
            ToolEffect::ReadOnly
        } else if tool.annotations["idempotentHint"] == true {
            ToolEffect::Idempotent
        } else {
            ToolEffect::SideEffect
        }
    }

    /// A tool that is left out. Its name may be invalid: the agent's author or the server wrote it.
    fn missing(&self, tool: &str, reason: &str) -> MissingTool {
        let name = format!("{PREFIX}{}__{}", self.0.name, cut(tool, SHOWN));
        MissingTool { name, reason: cut(reason, MAX_REASON_BYTES).into_owned() }
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

/// A tool of a server that is not offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingTool {
    /// Its full name.
    pub name: String,
    pub reason: String,
}

/// One tool of a server.
#[derive(Clone)]
pub(crate) struct McpTool {
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
    /// The server answered something that is no result: the call may have run.
    Unreadable(&'static str),
}

impl McpTool {
    pub(crate) fn timeout(&self) -> Duration {
        self.server.0.timeout
    }

    fn may_have_run(&self, reason: &str) -> ToolFailure {
        self.outcome_unknown(format!("the connection to the tool server was lost while the call ran ({reason})"))
    }

    fn outcome_unknown(&self, lost: String) -> ToolFailure {
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
        let request = CallToolRequest::new(params);
        let answer = ask(connection.peer(), ClientRequest::CallToolRequest(request)).await;
        let mut answer = answer.map_err(|error| classify(&error))?;
        match answer["resultType"].as_str() {
            Some("input_required") => {
                Err(RequestError::Refused("the tool asks for further input, which an execution cannot give".into()))
            }
            Some("task") => Err(RequestError::Unreadable("the server answered with a task, which is not supported")),
            Some(_) | None => result::read(&mut answer)
                .ok_or(RequestError::Unreadable("the server answered something else than a result")),
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
            RequestError::Unreadable("the server answered something else than a result")
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
        let mut args = args;
        if let Some(mended) = &self.spec.mended {
            restore(&mut args, &mended.properties);
        }
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
                Err(RequestError::Unreadable(reason)) => return Err(self.outcome_unknown(reason.to_owned())),
                Err(RequestError::Unsent(reason)) => {
                    self.server.0.pool.discard(&self.server.0.key, &connection).await;
                    let reason = scrub(reason) + &connection.last_words().await;
                    return Err(match lost {
                        None => ToolFailure::EndsRun(self.server.unreachable(&reason)),
                        Some(lost) => self.may_have_run(&lost),
                    });
                }
                Err(RequestError::Lost(reason)) => {
                    self.server.0.pool.discard(&self.server.0.key, &connection).await;
                    let reason = scrub(reason) + &connection.last_words().await;
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
