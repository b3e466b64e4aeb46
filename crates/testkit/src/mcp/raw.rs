//! A minimal MCP server for `verify` and `bench`: tools over streamable HTTP, without sessions or server-sent
//! streams.
//!
//! Raw JSON instead of rmcp, because a call may drop its connection, and because the server takes its time from the
//! processes that `bench` measures.

use axum::{
    Json, Router,
    body::Bytes,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use serde_json::{Value, json};

use crate::http_server::HangUp;

/// A server at `/mcp` that answers `tools` to `tools/list`, and the text that `call` returns for the headers and the
/// parameters to `tools/call`. GET (stream) and DELETE (session) get 405, after which a client continues without
/// them.
pub fn router<F>(tools: Value, call: impl Fn(HeaderMap, Value) -> F + Clone + Send + Sync + 'static) -> Router
where
    F: Future<Output = Result<String, HangUp>> + Send + 'static,
{
    let answer = move |headers, body| answer(tools.clone(), call.clone(), headers, body);
    Router::new().route("/mcp", post(answer))
}

async fn answer<F: Future<Output = Result<String, HangUp>>>(
    tools: Value,
    call: impl Fn(HeaderMap, Value) -> F,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, HangUp> {
    let Ok(mut message) = serde_json::from_slice::<Value>(&body) else {
        return Ok((StatusCode::BAD_REQUEST, "not JSON").into_response());
    };
    let Some(id) = message.get("id").cloned() else { return Ok(StatusCode::ACCEPTED.into_response()) };
    let params = message["params"].take();
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => initialized(&params),
        "ping" => json!({}),
        "tools/list" => json!({ "tools": tools }),
        "tools/call" => {
            let text = call(headers, params).await?;
            json!({ "content": [{ "type": "text", "text": text }], "isError": false })
        }
        other => {
            let error = json!({ "code": -32601, "message": format!("no method {other}") });
            return Ok(Json(json!({ "jsonrpc": "2.0", "id": id, "error": error })).into_response());
        }
    };
    Ok(Json(json!({ "jsonrpc": "2.0", "id": id, "result": result })).into_response())
}

/// A server at `/mcp` whose results are whatever `answer` returns for a method and its parameters.
pub fn any_results(answer: impl Fn(&str, &Value) -> Value + Clone + Send + Sync + 'static) -> Router {
    let answer = move |body: Bytes| async move {
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        let Some(id) = message.get("id") else { return StatusCode::ACCEPTED.into_response() };
        let (method, params) = (message["method"].as_str().unwrap_or_default(), &message["params"]);
        let result = match method {
            "initialize" => initialized(params),
            _ => answer(method, params),
        };
        Json(json!({ "jsonrpc": "2.0", "id": id, "result": result })).into_response()
    };
    Router::new().route("/mcp", post(answer))
}

fn initialized(params: &Value) -> Value {
    json!({
        "protocolVersion": params["protocolVersion"], "capabilities": { "tools": {} },
        "serverInfo": { "name": "longhaul", "version": env!("CARGO_PKG_VERSION") },
    })
}

/// Describes a tool whose arguments are all integers, for `tools/list`.
#[must_use]
pub fn listed(name: &str, description: &str, arguments: &[&str]) -> Value {
    let properties: serde_json::Map<String, Value> =
        arguments.iter().map(|name| ((*name).to_owned(), json!({ "type": "integer" }))).collect();
    json!({
        "name": name, "description": description,
        "inputSchema": { "type": "object", "properties": properties, "required": arguments },
    })
}
