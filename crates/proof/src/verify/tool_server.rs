//! The tool server: an MCP server over streamable HTTP that only counts calls, and loses some answers.
//!
//! The effect happens at the start of a call and the answer comes later, so that faults fall between them.

use std::{sync::Arc, time::Duration};

use longhaul_shared::clock::{Clock, SystemClock};
use longhaul_testkit::{
    http_server::{HangUp, HttpServer, Protocol, StartError},
    mcp::raw,
};
use parking_lot::{Mutex, MutexGuard};
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    fleet::PROCESS_HEADER,
    seen::{CountedTool, Effect},
};

/// Time from the effect to its answer.
const TAKES: Duration = Duration::from_millis(40);
/// The first answer to `put` is lost for executions whose number is a multiple of this.
const LOSES_ONCE: i64 = 5;

/// The running server, stopped when dropped.
pub(super) struct ToolServer {
    server: HttpServer,
    log: Log,
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Effect>>>);

impl Log {
    fn lock(&self) -> MutexGuard<'_, Vec<Effect>> {
        self.0.lock()
    }
}

impl ToolServer {
    pub(super) async fn start() -> Result<Self, StartError> {
        let log = Log::default();
        let tools = CountedTool::ALL.map(|tool| raw::listed(tool.name(), "Counted.", &["execution", "call"]));
        let own = log.clone();
        let router = raw::router(json!(tools), move |headers, params| call(own.clone(), headers, params));
        let server = HttpServer::start(Protocol::Http1, router).await?;
        Ok(Self { server, log })
    }

    pub(super) fn url(&self) -> String {
        format!("{}/mcp", self.server.url())
    }

    /// All effects so far.
    pub(super) fn effects(&self) -> Vec<Effect> {
        self.log.lock().clone()
    }
}

async fn call(log: Log, headers: HeaderMap, params: Value) -> Result<String, HangUp> {
    let process = headers.get(PROCESS_HEADER).and_then(|name| name.to_str().ok()).unwrap_or_default();
    let tool = CountedTool::ALL.into_iter().find(|tool| params["name"] == tool.name()).ok_or_else(HangUp::default)?;
    let (arguments, key) = (&params["arguments"], params["_meta"]["idempotencyKey"].as_str().unwrap_or_default());
    let (Some(execution), Some(call)) = (arguments["execution"].as_i64(), arguments["call"].as_i64()) else {
        return Err(HangUp::default());
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
        return Err(HangUp::default());
    }
    Ok(format!("effect #{number}#"))
}
