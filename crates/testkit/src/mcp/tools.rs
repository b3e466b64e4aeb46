//! An MCP server with a tool for everything that can happen to a call. `HttpMcp` serves it over HTTP, and a program of
//! the tests over standard streams.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, JsonObject, ListToolsResult,
        PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
    },
    service::RequestContext,
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

/// Number of tools on one page of the list.
const PAGE: usize = 3;

/// State of the server that a test reads or sets.
pub struct Observed {
    /// Calls of any tool by their idempotency key.
    pub calls: Mutex<BTreeMap<String, usize>>,
    /// Pages of the tool list served.
    pub pages: AtomicUsize,
    /// Calls of `gated` that have begun.
    pub waiting: AtomicUsize,
    /// Calls of `gated` that the client cancelled.
    pub cancelled: AtomicUsize,
    /// If true, requests for the list of tools are never answered.
    pub silent: AtomicBool,
    /// If true, the tools are listed in another order and with other descriptions.
    pub reworded: AtomicBool,
    /// One permit lets one call of `gated` through.
    pub gate: Semaphore,
}

impl Default for Observed {
    fn default() -> Self {
        Self {
            calls: Mutex::default(),
            pages: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            cancelled: AtomicUsize::new(0),
            silent: AtomicBool::new(false),
            reworded: AtomicBool::new(false),
            gate: Semaphore::new(0),
        }
    }
}

/// The server. Clones share their observations.
#[derive(Clone, Default)]
pub struct TestMcp(pub Arc<Observed>);

impl ServerHandler for TestMcp {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.0.pages.fetch_add(1, Ordering::SeqCst);
        if self.0.silent.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        let from = request.and_then(|page| page.cursor?.parse::<usize>().ok()).unwrap_or_default();
        let mut all = tools();
        if self.0.reworded.load(Ordering::SeqCst) {
            all.reverse();
            all.iter_mut().for_each(|tool| tool.description = Some(format!("A tool: {}.", tool.name).into()));
        }
        let mut page = ListToolsResult::with_all_items(all.iter().skip(from).take(PAGE).cloned().collect());
        page.next_cursor = (from + PAGE < all.len()).then(|| (from + PAGE).to_string());
        Ok(page)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let key = context.meta.0.0.get("idempotencyKey").and_then(Value::as_str).unwrap_or("none").to_owned();
        *self.0.calls.lock().entry(key.clone()).or_default() += 1;
        let args = Value::Object(request.arguments.unwrap_or_default());
        let argument = |name: &str| args[name].as_str().unwrap_or_default();
        let text = |text: String| Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into());
        match request.name.as_ref() {
            "echo" => text(argument("text").to_owned()),
            "key" => text(key),
            "pid" => text(std::process::id().to_string()),
            "env" => text(json!(environment()).to_string()),
            "big" => text("b".repeat(args["bytes"].as_u64().map_or(0, |bytes| bytes as usize))),
            "fail" => Ok(CallToolResult::error(vec![ContentBlock::text("the shelf is empty")]).into()),
            "refuse" => Err(ErrorData::invalid_params("no such shelf", None)),
            "picture" => {
                let parts = vec![ContentBlock::text("look:"), ContentBlock::image("aGVsbG8=", "image/png")];
                Ok(CallToolResult::success(parts).into())
            }
            "gated" => self.gated(&context).await,
            "crash_once" => text(crash_once(Path::new(argument("marker")), &key)),
            other => Err(ErrorData::invalid_params(format!("no tool `{other}`"), None)),
        }
    }
}

impl TestMcp {
    async fn gated(&self, context: &RequestContext<RoleServer>) -> Result<CallToolResponse, ErrorData> {
        self.0.waiting.fetch_add(1, Ordering::SeqCst);
        tokio::select! {
            permit = self.0.gate.acquire() => {
                // Cannot fail: the gate is never closed.
                permit.into_iter().for_each(|permit| permit.forget());
                Ok(CallToolResult::success(vec![ContentBlock::text("let through")]).into())
            }
            () = context.ct.cancelled() => {
                self.0.cancelled.fetch_add(1, Ordering::SeqCst);
                Err(ErrorData::internal_error("cancelled", None))
            }
        }
    }
}

/// Exits in the middle of the first call with this marker, in whichever process; answers the second.
#[expect(clippy::exit, reason = "dying in the middle of a call is what this tool is for")]
fn crash_once(marker: &Path, key: &str) -> String {
    if marker.exists() {
        return format!("answered for {key}");
    }
    if let Err(error) = std::fs::write(marker, key) {
        return format!("{}: {error}", marker.display());
    }
    std::process::exit(1)
}

#[expect(clippy::disallowed_methods, reason = "the tool shows which variables the process was given")]
fn environment() -> BTreeMap<String, String> {
    std::env::vars().collect()
}

fn tools() -> Vec<Tool> {
    let none = json!({"type": "object"});
    let hints = ToolAnnotations::new;
    vec![
        tool("picture", &none),
        tool("echo", &json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}))
            .with_annotations(hints().read_only(true)),
        tool("key", &none).with_annotations(hints().idempotent(true)),
        tool("pid", &none),
        tool("env", &none),
        tool("big", &json!({"type": "object", "properties": {"bytes": {"type": "integer"}}})),
        tool("fail", &none),
        tool("refuse", &none),
        tool("gated", &none),
        tool("crash_once", &json!({"type": "object", "properties": {"marker": {"type": "string"}}})),
        tool("not.callable", &none),
        tool("unusable", &json!({"type": "object", "properties": {"x": {"$ref": "http://127.0.0.1:1/schema"}}})),
    ]
}

fn tool(name: &'static str, schema: &Value) -> Tool {
    let schema: JsonObject = schema.as_object().cloned().unwrap_or_default();
    Tool::new(name, format!("The tool {name}."), schema)
}
