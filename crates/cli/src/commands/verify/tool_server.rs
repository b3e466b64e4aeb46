//! The tools: an MCP server over streamable HTTP that does nothing but count what it was told to do, and now and then loses its answer.
//!
//! What a tool does happens at the beginning of a call and its answer comes later, so that faults fall in between.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hyper::{Method, Request, body::Bytes};
use longhaul_shared::clock::{Clock, SystemClock};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    fleet::PROCESS_HEADER,
    seen::{CountedTool, Effect},
};
use crate::http_server::{self, Answer, HangUp, HttpServer, Protocol, StartError};

/// From the effect to its answer.
const TAKES: Duration = Duration::from_millis(40);
/// Of the executions whose number this divides, the first answer to `put` is lost.
const LOSES_ONCE: i64 = 5;

/// The server. It stops with its owner.
pub(super) struct ToolServer {
    server: HttpServer,
    log: Log,
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Effect>>>);

impl Log {
    fn lock(&self) -> MutexGuard<'_, Vec<Effect>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ToolServer {
    pub(super) async fn start() -> Result<Self, StartError> {
        let log = Log::default();
        let own = log.clone();
        let server = HttpServer::start(Protocol::Http1, move |request| answer(own.clone(), request)).await?;
        Ok(Self { server, log })
    }

    pub(super) fn url(&self) -> String {
        format!("{}/mcp", self.server.url())
    }

    /// Everything that was done so far.
    pub(super) fn effects(&self) -> Vec<Effect> {
        self.log.lock().clone()
    }
}

async fn answer(log: Log, request: Request<Bytes>) -> Result<Answer, HangUp> {
    // No session and no stream of its own: a client that asks for either goes on without.
    if request.method() != Method::POST {
        return http_server::whole(405, "text/plain", "only POST");
    }
    let Ok(message) = serde_json::from_slice::<Value>(request.body()) else {
        return http_server::whole(400, "text/plain", "not JSON");
    };
    let Some(id) = message.get("id") else { return http_server::whole(202, "text/plain", "") };
    let params = &message["params"];
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": params["protocolVersion"], "capabilities": { "tools": {} },
            "serverInfo": { "name": "verify", "version": env!("CARGO_PKG_VERSION") },
        }),
        "ping" => json!({}),
        "tools/list" => json!({ "tools": CountedTool::ALL.map(listed) }),
        "tools/call" => {
            let process = request.headers().get(PROCESS_HEADER).and_then(|name| name.to_str().ok()).unwrap_or_default();
            call(&log, process, params).await?
        }
        other => {
            let error = json!({ "code": -32601, "message": format!("no method {other}") });
            let body = json!({ "jsonrpc": "2.0", "id": id, "error": error });
            return http_server::whole(200, "application/json", body.to_string());
        }
    };
    http_server::whole(200, "application/json", json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string())
}

fn listed(tool: CountedTool) -> Value {
    let number = json!({ "type": "integer" });
    json!({
        "name": tool.name(), "description": "Counted.",
        "inputSchema": {
            "type": "object", "properties": { "execution": number, "call": number }, "required": ["execution", "call"],
        },
    })
}

async fn call(log: &Log, process: &str, params: &Value) -> Result<Value, HangUp> {
    let tool = CountedTool::ALL.into_iter().find(|tool| params["name"] == tool.name()).ok_or(HangUp)?;
    let (arguments, key) = (&params["arguments"], params["_meta"]["idempotencyKey"].as_str().unwrap_or_default());
    let (Some(execution), Some(call)) = (arguments["execution"].as_i64(), arguments["call"].as_i64()) else {
        return Err(HangUp);
    };
    let (number, is_first) = {
        let at = SystemClock::new().now();
        let mut effects = log.lock();
        let number = effects.len();
        let is_first = effects.iter().rev().take(10_000).all(|effect| effect.key != key);
        effects.push(Effect { number, tool, key: key.to_owned(), process: process.to_owned(), execution, call, at });
        (number, is_first)
    };
    sleep(TAKES).await;
    let is_lost = match tool {
        CountedTool::Look | CountedTool::Charge => false,
        CountedTool::Put => is_first && execution % LOSES_ONCE == 0,
        CountedTool::ChargeUnanswered => true,
    };
    if is_lost {
        return Err(HangUp);
    }
    Ok(json!({ "content": [{ "type": "text", "text": format!("effect #{number}#") }], "isError": false }))
}
