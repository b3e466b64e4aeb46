//! Lists and results of tool servers that deviate from the protocol.

use longhaul_sdk::AgentSpec;
use longhaul_store::history::ledger::EffectState;
use longhaul_testkit::{
    http_server::{HttpServer, Protocol},
    mcp::raw,
    model::{reply_calls, reply_text},
};
use serde_json::{Value, json};

use crate::{
    agent_loop::kit::ledger,
    support::fleet::{Fleet, agent},
    worker::kit::definition,
};

fn tool(name: &str) -> Value {
    json!({ "name": name, "inputSchema": { "type": "object", "properties": { "q": { "type": "string" } } } })
}

/// A list of 30 entries of which two cannot be mended.
fn odd_list() -> Value {
    let mut tools: Vec<Value> = (0..24).map(|n| tool(&format!("plain{n}"))).collect();
    tools.push(json!({ "name": "text_only", "inputSchema": { "type": "string" } }));
    tools.push(tool("files.read"));
    let branch = |name: &str| json!({ "properties": { name: { "type": "string" } }, "required": [name] });
    tools.push(json!({ "name": "either", "inputSchema": { "type": "object", "oneOf": [branch("a"), branch("b")] } }));
    tools.push(Value::Null);
    tools.push(json!({ "name": "twilio",
        "inputSchema": { "type": "object", "properties": { "DateCreated<": { "type": "string" } } } }));
    tools.push(json!({ "name": "bare" }));
    Value::Array(tools)
}

/// A server that lists [`odd_list`] and answers a call with its parameters, or with `result`.
async fn server(result: Option<Value>) -> HttpServer {
    server_of(json!({ "tools": odd_list(), "nextCursor": "the same" }), result).await
}

async fn server_of(list: Value, result: Option<Value>) -> HttpServer {
    let router = raw::any_results(move |method, params| match method {
        "tools/list" => list.clone(),
        "tools/call" => {
            let told = json!({ "name": params["name"], "arguments": params["arguments"] }).to_string();
            result.clone().unwrap_or_else(|| json!({ "content": [{ "type": "text", "text": told }] }))
        }
        _ => json!({}),
    });
    HttpServer::start(Protocol::Http1, router).await.unwrap()
}

fn agent_of(server: &HttpServer) -> AgentSpec {
    let mut agent = agent("a");
    let spec = json!({ "url": format!("{}/mcp", server.url()) });
    agent.mcp_servers = [("t".to_owned(), serde_json::from_value(spec).unwrap())].into();
    agent
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_tools_are_mended_or_named() {
    let server = server(None).await;
    for dialect in ["openai", "anthropic"] {
        let mut fleet = Fleet::start().await;
        for (name, value) in [("KIND", dialect), ("BASE_URL", &fleet.llm.url()), ("DEFAULT_MODEL", "m")] {
            fleet.set(&format!("LONGHAUL__LLM__PROVIDERS__OTHER__{name}"), value);
        }
        let mut agent = agent_of(&server);
        agent.model.provider = Some("other".into());
        fleet.apply(&agent, &definition("d", &["is_valid_json"])).await;
        fleet.llm.answer_with(|request| match request.replies() {
            0 => {
                let offered = request.body["tools"].to_string();
                let start = offered.find("DateCreated").unwrap();
                let name = offered[start..].split('"').next().unwrap();
                let twilio = ("mcp__t__twilio", json!({ name: "today" }));
                reply_calls([("mcp__t__files_read", json!({ "q": "x" })), twilio])
            }
            _ => reply_text("{}"),
        });
        let worker = fleet.worker();
        let id = fleet.submit("d", json!({})).await;
        let row = fleet.ended(id).await;
        assert_eq!(row["status"], "FINISHED", "{row}");
        worker.drain().await;
        let requests = fleet.llm.requests();
        let offered = requests[0].tools();
        assert_eq!(offered.iter().filter(|name| name.starts_with("mcp__t__")).count(), 28, "{offered:?}");
        let told = requests[1].body["messages"].to_string();
        for call in [
            r#"{\\\"arguments\\\":{\\\"q\\\":\\\"x\\\"},\\\"name\\\":\\\"files.read\\\"}"#,
            r#"{\\\"DateCreated<\\\":\\\"today\\\"}"#,
        ] {
            assert!(told.contains(&call.replace("\\\\\\", "\\")), "{call} in {told}");
        }
        let missing = fleet.json("select data from events where kind = 'tools_missing'").await;
        assert_eq!(missing["tools"], json!(["mcp__t__entry 28 of its list", "mcp__t__text_only"]));
        let reason = |name: &str| missing["reasons"][name].as_str().unwrap().to_owned();
        assert!(reason("mcp__t__text_only").contains("not an object"), "{missing}");
        assert!(reason("mcp__t__entry 28 of its list").contains("no object"), "{missing}");
    }
}

/// Runs one call of a side effect that the server answers with this result. Returns what the model is told and the
/// state of the effect.
async fn told(result: Value) -> (String, EffectState) {
    let server = server(Some(result)).await;
    let fleet = Fleet::start().await;
    fleet.apply(&agent_of(&server), &definition("d", &["is_valid_json"])).await;
    fleet.llm.push(reply_calls([("mcp__t__plain0", json!({}))]));
    fleet.llm.push(reply_text("{}"));
    let worker = fleet.worker();
    let id = fleet.submit("d", json!({})).await;
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    worker.drain().await;
    let effects = ledger(&fleet, id).await;
    let told = fleet.llm.requests()[1].last_text();
    (told, effects[0].1)
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_part_of_a_result_loses_no_other() {
    let content = json!([{ "type": "text", "text": "booked" }, { "type": "hologram", "uri": "x" }, 7]);
    let (text, state) = told(json!({ "content": content })).await;
    assert!(text.contains("booked") && text.contains("[content of type hologram]"), "{text}");
    assert_eq!(state, EffectState::Done);
    let link = json!({ "type": "resource_link", "uri": "file:///r", "name": "r", "description": "the receipt" });
    let (text, _) = told(json!({ "content": [link] })).await;
    assert!(text.contains("file:///r") && text.contains("the receipt"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_that_is_no_result_leaves_the_outcome_unknown() {
    for answer in [json!({ "booked": true }), json!({ "resultType": "task", "task": { "taskId": "1" } })] {
        let (text, state) = told(answer.clone()).await;
        assert!(text.contains("outcome_unknown"), "{answer}: {text}");
        assert_eq!(state, EffectState::Unknown, "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn list_that_is_none_is_an_unreachable_server() {
    for list in [json!([]), json!("x"), json!(7), json!({ "tools": {} })] {
        let server = server_of(list.clone(), None).await;
        let fleet = Fleet::start().await;
        fleet.apply(&agent_of(&server), &definition("d", &["is_valid_json"])).await;
        let worker = fleet.worker();
        let id = fleet.submit("d", json!({})).await;
        fleet.until(id, "it backs off", |row| row["wait_reason"] == "retry_backoff").await;
        assert_eq!(fleet.json("select to_jsonb(failure_code) from attempts").await, "tool_unreachable", "{list}");
        worker.drain().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tool_that_is_listed_twice_is_offered_once() {
    let mut other = tool("files.read");
    other["description"] = json!("another");
    let server = server_of(json!({ "tools": [tool("files.read"), other, tool("files_read")] }), None).await;
    let fleet = Fleet::start().await;
    fleet.apply(&agent_of(&server), &definition("d", &["is_valid_json"])).await;
    fleet.llm.push(reply_text("{}"));
    let worker = fleet.worker();
    let id = fleet.submit("d", json!({})).await;
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    worker.drain().await;
    let requests = fleet.llm.requests();
    let offered = requests[0].tools();
    assert_eq!(offered.len(), 2, "{offered:?}");
    assert!(offered[0] == "mcp__t__files_read" && offered[1].starts_with("mcp__t__files_read_"), "{offered:?}");
    let missing = fleet.json("select data -> 'reasons' from events where kind = 'tools_missing'").await;
    assert_eq!(missing, json!({ "mcp__t__files.read": "the server lists it twice: the first one counts" }));
}
