//! The tools of MCP servers as a model sees them, and their effects.

use std::sync::atomic::Ordering;

use longhaul_sdk::{FailureClass, FailureCode, ToolEffect};
use longhaul_testkit::mcp::HttpMcp;
use longhaul_tools::Toolbox;
use serde_json::json;

use super::{EVERYWHERE, agent, call, http, settings, sources, sources_with, stdio};
use crate::support::mcp::STDIO_SERVER;

const NAMES: [&str; 11] =
    ["big", "crash_once", "echo", "env", "fail", "gated", "key", "not_callable", "picture", "pid", "refuse"];

fn names(toolbox: &Toolbox) -> Vec<&str> {
    toolbox.specs().iter().map(|spec| spec.name.as_str()).collect()
}

#[tokio::test]
async fn both_transports_list_the_same_callable_tools() {
    let (server, sources) = (HttpMcp::start().await.unwrap(), sources());
    let over_http = Toolbox::open(&http(&server.url(), json!({})), &sources, EVERYWHERE).await.unwrap();
    let over_stdio = Toolbox::open(&stdio(json!({})), &sources, EVERYWHERE).await.unwrap();
    assert_eq!(names(&over_http), NAMES.map(|name| format!("mcp__s__{name}")));
    assert_eq!(serde_json::to_vec(over_http.specs()).unwrap(), serde_json::to_vec(over_stdio.specs()).unwrap());
    assert!(over_http.is_dynamic());
    assert_eq!(server.observed.pages.load(Ordering::SeqCst), 4, "twelve tools, three a page");
    assert_eq!(over_http.specs()[2].description, "The tool echo.");
    assert_eq!(over_http.specs()[2].parameters["required"], json!(["text"]));
}

#[tokio::test]
async fn agent_effects_override_hints_of_trusted_servers() {
    let (server, sources) = (HttpMcp::start().await.unwrap(), sources());
    let effects = async |more| {
        let toolbox = Toolbox::open(&http(&server.url(), more), &sources, EVERYWHERE).await.unwrap();
        ["echo", "key", "pid"].map(|name| toolbox.effect(&format!("mcp__s__{name}")))
    };
    use ToolEffect::{Idempotent, ReadOnly, SideEffect};
    assert_eq!(effects(json!({})).await, [SideEffect, SideEffect, SideEffect]);
    assert_eq!(effects(json!({"trusted": true})).await, [ReadOnly, Idempotent, SideEffect]);
    let said = json!({"trusted": true, "effects": {"echo": "side_effect", "pid": "read_only"}});
    assert_eq!(effects(said).await, [SideEffect, Idempotent, ReadOnly]);
    assert_eq!(effects(json!({"effects": {"key": "idempotent"}})).await, [SideEffect, Idempotent, SideEffect]);
}

#[tokio::test]
async fn only_allowed_tools_are_shown_by_server() {
    let (server, sources) = (HttpMcp::start().await.unwrap(), sources());
    let spec = |allow: &[&str]| json!({"url": server.url(), "allow": allow});
    let agent = agent(json!({"zeta": spec(&["echo"]), "alpha": spec(&["pid", "key", "missing"])}));
    let toolbox = Toolbox::open(&agent, &sources, EVERYWHERE).await.unwrap();
    assert_eq!(names(&toolbox), ["mcp__alpha__key", "mcp__alpha__pid", "mcp__zeta__echo"]);
    let refused = call(&toolbox, "echo", json!({})).await;
    assert!(refused.text.contains("there is no tool named `mcp__s__echo`"), "{}", refused.text);
}

#[tokio::test]
async fn unreachable_server_is_transient_with_a_reason() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = format!("http://{}/mcp", free.local_addr().unwrap());
    drop(free);
    for (spec, expected) in [
        (json!({"command": ["/nonexistent/server"]}), "`/nonexistent/server` could not be started"),
        (json!({"command": ["/bin/false"]}), "the handshake failed"),
        (
            json!({"command": ["sh", "-c", "echo ModuleNotFoundError: renamed >&2; exit 1"]}),
            "its last words: ModuleNotFoundError: renamed",
        ),
        (json!({ "url": closed }), "the handshake failed"),
        (
            json!({"command": [STDIO_SERVER], "env": {"A": "env://MISSING"}}),
            "`env://MISSING` is not set on this worker",
        ),
    ] {
        let failure = Toolbox::open(&agent(json!({ "s": spec })), &sources(), EVERYWHERE).await.unwrap_err();
        assert_eq!(
            (failure.class, &failure.code),
            (FailureClass::Transient, &FailureCode::TOOL_UNREACHABLE),
            "{failure:?}"
        );
        assert!(failure.summary.starts_with("tool server `s` could not be reached: "), "{}", failure.summary);
        assert!(failure.summary.contains(expected), "{}", failure.summary);
    }
}

#[tokio::test]
async fn pinned_list_connects_only_for_a_call() {
    let (server, sources) = (HttpMcp::start().await.unwrap(), sources());
    let agent = http(&server.url(), json!({}));
    let pinned = Toolbox::open(&agent, &sources, EVERYWHERE).await.unwrap().specs().to_vec();
    let pages = server.observed.pages.load(Ordering::SeqCst);

    let fresh = sources_with(settings());
    let toolbox = Toolbox::pinned(&agent, pinned.clone(), &fresh, EVERYWHERE).unwrap();
    assert_eq!((toolbox.specs(), fresh.mcp.connections()), (pinned.as_slice(), 0));
    assert_eq!(call(&toolbox, "echo", json!({"text": "hello"})).await.text, "hello");
    assert_eq!(fresh.mcp.connections(), 1);
    assert_eq!(server.observed.pages.load(Ordering::SeqCst), pages, "the list was not asked for again");
}
