//! A minimal MCP server for `verify` and `bench`: tools over streamable HTTP, without sessions or server-sent
//! streams.

use hyper::{Method, Request, body::Bytes};
use serde_json::{Value, json};

use crate::http_server::{self, Answer, HangUp};

/// Answers one request: `tools` for `tools/list`, and the text that `call` returns for `tools/call`.
///
/// # Errors
/// `call` drops the connection.
pub async fn answer<F: Future<Output = Result<String, HangUp>>>(
    request: &Request<Bytes>,
    tools: Value,
    call: impl FnOnce(Value) -> F,
) -> Result<Answer, HangUp> {
    // GET (stream) and DELETE (session) get 405, after which a client continues without them.
    if request.method() != Method::POST {
        return http_server::whole(405, "text/plain", "only POST");
    }
    let Ok(mut message) = serde_json::from_slice::<Value>(request.body()) else {
        return http_server::whole(400, "text/plain", "not JSON");
    };
    let Some(id) = message.get("id").cloned() else { return http_server::whole(202, "text/plain", "") };
    let params = message["params"].take();
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": params["protocolVersion"], "capabilities": { "tools": {} },
            "serverInfo": { "name": "longhaul", "version": env!("CARGO_PKG_VERSION") },
        }),
        "ping" => json!({}),
        "tools/list" => json!({ "tools": tools }),
        "tools/call" => {
            let text = call(params).await?;
            json!({ "content": [{ "type": "text", "text": text }], "isError": false })
        }
        other => {
            let error = json!({ "code": -32601, "message": format!("no method {other}") });
            let body = json!({ "jsonrpc": "2.0", "id": id, "error": error });
            return http_server::whole(200, "application/json", body.to_string());
        }
    };
    http_server::whole(200, "application/json", json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string())
}

/// Describes a tool whose arguments are all integers, for `tools/list`.
pub fn listed(name: &str, description: &str, arguments: &[&str]) -> Value {
    let properties: serde_json::Map<String, Value> =
        arguments.iter().map(|name| ((*name).to_owned(), json!({ "type": "integer" }))).collect();
    json!({
        "name": name, "description": description,
        "inputSchema": { "type": "object", "properties": properties, "required": arguments },
    })
}
