//! What the screens show, and to whom.

use longhaul_api::{ApiOptions, PageOptions};
use longhaul_domain::WaitReason;
use longhaul_sdk::{Failure, FailureClass, FailureCode};
use longhaul_store::tenants::api_keys::Scope;

use crate::support::leases::Conclusion;
use reqwest::Method;
use serde_json::json;

use super::Visitor;
use crate::support::{
    api::{EVERYDAY, TestApi},
    leases::TestWorker,
};

/// Screens without parameters.
const SCREENS: &[&str] = &[
    "/",
    "/executions",
    "/usage",
    "/new",
    "/approvals",
    "/questions",
    "/runs",
    "/sessions",
    "/projects",
    "/schedules",
    "/agents",
    "/definitions",
    "/skills",
    "/indexes",
    "/memory",
    "/workers",
    "/limits",
    "/quarantine",
    "/webhooks",
    "/keys",
    "/accounts",
    "/audit",
];

#[tokio::test]
async fn every_screen_shows_its_heading() {
    let api = TestApi::start().await;
    let id = api.submit().await;
    let admin = api.caller("acme", Scope::ALL).await;
    let run = json!({"key": "report-7", "budget": {"max_model_calls": 3}});
    assert_eq!(admin.post("/v1/runs", &run).await.status, 201);
    let worker = TestWorker::start(&api.store).await;
    let visitor = Visitor::sign_in(&api, admin.key.as_deref().unwrap()).await;
    let of_one = [
        format!("/executions/{id}"),
        format!("/executions/{id}/messages"),
        "/agents/clerk".into(),
        "/definitions/invoice".into(),
        "/providers".into(),
        "/runs/report-7".into(),
        format!("/workers/{}", worker.id),
    ];
    for path in SCREENS.iter().map(|path| (*path).to_owned()).chain(of_one) {
        let screen = visitor.get(&path).await;
        assert_eq!(screen.status, 200, "{path}: {}", screen.text);
        assert!(screen.text.contains("<h1") && screen.text.contains("</html>"), "{path}: {}", screen.text);
        let policy = screen.header("content-security-policy");
        assert!(policy.contains("script-src 'self'") && !policy.contains("unsafe"), "{path}: {policy}");
    }
}

#[tokio::test]
async fn screens_show_no_other_tenant() {
    let api = TestApi::start().await;
    let id = api.submit().await;
    let stranger = api.caller("other", EVERYDAY).await;
    let visitor = Visitor::sign_in(&api, stranger.key.as_deref().unwrap()).await;
    let own = Visitor::sign_in(&api, api.acme.key.as_deref().unwrap()).await;
    assert!(own.get("/executions").await.text.contains(&id.to_string()));
    for path in ["/", "/executions"] {
        let screen = visitor.get(path).await;
        assert!(screen.status == 200 && !screen.text.contains(&id.to_string()), "{path}");
    }
    assert_eq!(visitor.get("/executions?all_tenants=true").await.status, 403);
    assert_eq!(visitor.get(&format!("/executions/{id}")).await.status, 404);
    assert_eq!(visitor.get(&format!("/find?q={id}")).await.status, 404);
    assert_eq!(visitor.get("/providers").await.status, 403);
}

#[tokio::test]
async fn filters_of_the_address_reach_the_list() {
    let api = TestApi::start().await;
    let id = api.submit().await;
    let visitor = Visitor::sign_in(&api, api.acme.key.as_deref().unwrap()).await;
    let shows = async |query: &str| visitor.get(&format!("/executions?{query}")).await.text.contains(&id.to_string());
    assert!(shows("status=PENDING&agent=&wait_reason=worker&failure_code=").await);
    assert!(!shows("status=FAILED").await);
    assert!(!shows("metadata.customer=7").await);
    assert_eq!(visitor.get("/executions?status=x").await.status, 422);
    let found = visitor.get(&format!("/find?q={id}")).await;
    assert_eq!((found.status, found.header("location").to_owned()), (303, format!("/executions/{id}")));
    let found = visitor.get("/find?q=invoice").await;
    assert_eq!(found.header("location"), "/executions?definition=invoice");
}

#[tokio::test]
async fn texts_of_callers_are_escaped_everywhere() {
    let api = TestApi::start().await;
    let evil = "</main><script>alert(1)</script><img src=x onerror=alert(2)>\"'";
    let body = json!({"definition": "invoice", "input": {"text": evil}, "metadata": {"customer": evil}});
    let submitted = api.acme.post("/v1/executions", &body).await;
    assert_eq!(submitted.status, 201, "{}", submitted.text);
    let id = submitted.body["id"].as_str().unwrap().to_owned();
    let worker = TestWorker::start(&api.store).await;
    let claimed = worker.claim_one().await;
    let failure = Failure::new(FailureClass::LlmError, FailureCode::MODEL_UNREACHABLE, evil);
    worker.end(&claimed, Conclusion::Fail { failure }).await.unwrap();
    let visitor = Visitor::sign_in(&api, api.acme.key.as_deref().unwrap()).await;
    for path in ["/", "/executions", &format!("/executions/{id}"), &format!("/executions/{id}/messages")] {
        let screen = visitor.get(path).await;
        assert_eq!(screen.status, 200, "{path}");
        for raw in ["<script>alert", "<img src=x", "</main><script"] {
            assert!(!screen.text.contains(raw), "{path} has {raw}: {}", screen.text);
        }
    }
    assert!(visitor.get(&format!("/executions/{id}")).await.text.contains("&lt;script&gt;alert(1)"));
    let lost = visitor.get("/executions?agent=%3Cscript%3Ealert(1)%3C/script%3E").await;
    assert!(lost.status == 200 && !lost.text.contains("<script>alert"), "{}", lost.text);
}

#[tokio::test]
async fn executions_are_filtered_by_every_wait_reason() {
    let api = TestApi::start().await;
    let visitor = Visitor::sign_in(&api, api.acme.key.as_deref().unwrap()).await;
    let screen = visitor.get("/executions").await.text;
    for reason in WaitReason::ALL {
        assert!(screen.contains(&format!("<option value=\"{}\"", reason.as_str())), "{}: {screen}", reason.as_str());
    }
}

#[tokio::test]
async fn execution_links_to_its_trace() {
    let trace_url = Some("https://traces.example/trace/{trace_id}?back=%2F".to_owned());
    let page = PageOptions { trace_url, ..PageOptions::default() };
    let api = TestApi::start_with(ApiOptions { page, ..ApiOptions::default() }).await;
    let id = api.submit().await;
    let shown = api.acme.get(&format!("/v1/executions/{id}")).await;
    let trace = shown.body["trace_id"].as_str().unwrap();
    assert_eq!(trace, id.to_string().replace('-', ""), "a submit without a trace begins one with its own id");
    let visitor = Visitor::sign_in(&api, api.acme.key.as_deref().unwrap()).await;
    let screen = visitor.get(&format!("/executions/{id}")).await.text.replace("&#x2f;", "/");
    assert!(screen.contains(&format!("href=\"https://traces.example/trace/{trace}?back=%2F\"")), "{screen}");
}

#[tokio::test]
async fn followed_screen_is_sent_again_when_it_changes() {
    let api = TestApi::start().await;
    let visitor = Visitor::sign_in(&api, api.acme.key.as_deref().unwrap()).await;
    let headers = [("cookie", visitor.cookie.as_str()), ("accept", "text/event-stream")];
    let mut stream = api.nobody().request(Method::GET, "/executions");
    for (name, value) in headers {
        stream = stream.header(name, value);
    }
    let mut stream = stream.send().await.unwrap();
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let mut read = String::new();
    let mut read_until = async |wanted: &str, frames: usize| {
        while !read.contains(wanted) {
            assert!(read.matches("event: main").count() <= frames, "what did not change was sent again: {read}");
            let chunk = tokio::time::timeout(std::time::Duration::from_secs(30), stream.chunk()).await;
            let chunk = chunk.unwrap_or_else(|_| panic!("{wanted} did not arrive: {read}")).unwrap().unwrap();
            read.push_str(&String::from_utf8_lossy(&chunk));
        }
    };
    read_until("No executions.", 1).await;
    // A comment comes when there was nothing to send for as long.
    read_until("\n:\n\n", 1).await;
    let id = api.submit().await;
    read_until(&format!("row-{id}"), 2).await;
}
