//! An agent with the tools, from the submit to the artifacts: a model server over HTTP, a worker and a browser.

use longhaul_api::ApiOptions;
use longhaul_domain::{ExecutionId, requirements::BROWSER_TOOLS};
use longhaul_sdk::{
    AgentSpec,
    spec::{FileInput, ModelSpec, ToolRef},
};
use longhaul_testkit::model::{Captured, reply_calls, reply_text};
use longhaul_worker::WorkerBuilder;
use serde_json::{Value, json};

use super::{PROGRAM, Site, program};
use crate::support::{
    api::TestApi,
    fleet::{Fleet, agent},
};

const PAGES: &[(&str, &str)] = &[
    (
        "/",
        "<title>Orders</title><h1>New order</h1><form action=/sent><label>Name <input name=name value=old></label>
         <select name=colour><option>Red<option>Green</select><input type=hidden name=id value=7>
         <button>Send</button></form>",
    ),
    ("/sent", "<title>Sent</title><p>Thank you</p>"),
];

/// An API and a fleet over one database, a site, and the agent `surfer`, which sees pictures.
pub(super) struct Bench {
    pub(super) fleet: Fleet,
    pub(super) api: TestApi,
    pub(super) site: Site,
}

fn surfer(accepts: Vec<FileInput>) -> AgentSpec {
    let tools = BROWSER_TOOLS.into_iter().chain(["ask_caller"]).map(|name| ToolRef::Name(name.into())).collect();
    AgentSpec { model: ModelSpec { accepts, ..ModelSpec::default() }, tools, ..agent("surfer") }
}

impl Bench {
    pub(super) async fn start() -> Option<Self> {
        Self::over(Fleet::start().await, Site::start(PAGES).await).await
    }

    pub(super) async fn over(mut fleet: Fleet, site: Site) -> Option<Self> {
        let program = program()?;
        fleet.set("LONGHAUL__BROWSER__PROGRAM", &program);
        fleet.set("LONGHAUL__BROWSER__PRIVATE_HOSTS", &site.host);
        fleet.store.put_shared_agent(&surfer(vec![FileInput::Images])).await.unwrap();
        let options = ApiOptions { has_browser: true, max_running_sessions: 0, ..ApiOptions::default() };
        let api = TestApi::over(&fleet, options).await;
        Some(Self { fleet, api, site })
    }

    /// The model makes these calls, turn by turn, and then answers.
    pub(super) fn script<const N: usize>(&self, turns: [Vec<(&str, Value)>; N]) {
        for calls in turns {
            self.fleet.llm.push(reply_calls(calls));
        }
        self.fleet.llm.push(reply_text("done"));
    }

    pub(super) async fn submit(&self) -> ExecutionId {
        let body = json!({"agent": "surfer", "input": {"prompt": "work"}});
        let answer = self.api.acme.post("/v1/executions", &body).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        answer.body["id"].as_str().unwrap().parse().unwrap()
    }

    pub(super) async fn finished(&self, id: ExecutionId) -> Vec<String> {
        let row = self.fleet.ended(id).await;
        assert_eq!(row["status"], "FINISHED", "{row}");
        results(self.fleet.llm.requests().last().unwrap())
    }

    pub(super) fn open(&self, path: &str) -> (&'static str, Value) {
        ("browser_navigate", json!({ "url": self.site.url(path) }))
    }
}

/// Texts of the results of calls in a request.
fn results(request: &Captured) -> Vec<String> {
    let results = request.messages().iter().filter(|message| message["role"] == "tool");
    results
        .map(|message| match &message["content"] {
            Value::String(text) => text.clone(),
            parts => parts[0]["text"].as_str().unwrap().to_owned(),
        })
        .collect()
}

pub(super) fn read() -> (&'static str, Value) {
    ("browser_read", json!({}))
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_fills_a_form_and_leaves_a_screenshot() {
    let Some(bench) = Bench::start().await else { return };
    let worker = bench.fleet.worker();
    // One reply with several calls: they run in its order.
    bench.script([
        vec![bench.open("/"), read()],
        vec![
            ("browser_type", json!({"element": 1, "text": "Ada"})),
            ("browser_type", json!({"selector": "select", "text": "Green"})),
            ("browser_screenshot", json!({})),
            ("browser_click", json!({"element": 3})),
            read(),
        ],
    ]);
    let id = bench.submit().await;
    let results = bench.finished(id).await;
    assert!(results[0].starts_with("The page is open.\nPage: Orders <http://127.0.0.1:"), "{results:?}");
    let page = "# New order\nName [1 input text name=\"name\" value=\"old\"] \
                [2 select name=\"colour\" value=\"Red\" options=[\"Red\",\"Green\"]] [3 button] Send";
    assert!(results[1].contains(page), "{results:?}");
    assert!(results[5].starts_with("Clicked.\nPage: Sent <"), "{results:?}");
    assert!(results[6].contains("Thank you"), "{results:?}");
    assert!(bench.site.requests().contains(&"GET /sent?name=Ada&colour=Green&id=7".to_owned()));
    let answer = bench.api.acme.get(&format!("/v1/executions/{id}/artifacts")).await;
    let artifact = &answer.body["artifacts"][0];
    assert_eq!((&artifact["name"], &artifact["type"]), (&json!("screenshot-1.png"), &json!("image/png")));
    let last = bench.fleet.llm.requests();
    let shown = last.last().unwrap().messages().iter().find(|message| message["content"][1]["type"] == "image_url");
    let shown = shown.expect("the model is shown the picture")["content"][1]["image_url"]["url"].to_string();
    assert!(shown.contains("data:image/png;base64,iVBORw0KGgo"), "{}", &shown[..100]);
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_without_a_page_or_element_are_explained() {
    let Some(bench) = Bench::start().await else { return };
    let worker = bench.fleet.worker();
    bench.script([
        vec![read(), ("browser_screenshot", json!({}))],
        vec![bench.open("/")],
        vec![
            ("browser_click", json!({})),
            ("browser_click", json!({"element": 1, "selector": "a"})),
            ("browser_type", json!({"selector": "button", "text": "x"})),
            ("browser_click", json!({"selector": "#none"})),
            ("browser_navigate", json!({"url": "file:///etc/passwd"})),
        ],
    ]);
    let results = bench.finished(bench.submit().await).await;
    for (index, text) in [
        (0, "no page is open; call browser_navigate first"),
        (1, "no page is open; call browser_navigate first"),
        (3, "name one of `element` and `selector`"),
        (4, "name one of `element` and `selector`"),
        (5, "the element takes no text"),
        (6, "no element of the page matches the selector"),
        (7, "only http and https URLs can be opened, not `file`"),
    ] {
        assert!(results[index].contains(text), "{index}: {results:?}");
    }
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen_page_ends_its_browser_not_the_run() {
    let pages = &[("/", "<title>frozen</title><script>setTimeout(() => { for (;;); }, 300)</script>")];
    let site = Site::start(pages).await;
    let Some(mut bench) = Bench::over(Fleet::start().await, site).await else { return };
    for (name, seconds) in [("LOAD", "4"), ("CALL", "8")] {
        bench.fleet.set(&format!("LONGHAUL__BROWSER__{name}_SECONDS"), seconds);
    }
    let worker = bench.fleet.worker();
    bench.script([
        vec![bench.open("/")],
        vec![("browser_click", json!({"selector": "html"})), read()],
        vec![bench.open("/none"), read()],
    ]);
    let results = bench.finished(bench.submit().await).await;
    // Depending on when it freezes, the first or the second call finds out.
    let is_frozen = |text: &String| text.contains("the page did not react within 8 s, and the browser was closed");
    assert!(results[..2].iter().any(is_frozen), "{results:?}");
    assert!(results[2].contains("no page is open"), "{results:?}");
    assert!(results[3].starts_with("The page is open."), "{results:?}");
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn installation_without_a_browser_refuses_the_agent() {
    let api = TestApi::start().await;
    let spec = surfer(Vec::new());
    let put = api.acme.put("/v1/agents/surfer", &serde_json::to_value(&spec).unwrap()).await;
    assert_eq!((put.status, put.code()), (422, "browser_not_configured"), "{}", put.text);
    // Stored without the API, or before the setting changed.
    api.store.put_shared_agent(&spec).await.unwrap();
    let submit = api.acme.post("/v1/executions", &json!({"agent": "surfer", "input": {"prompt": "x"}})).await;
    assert_eq!((submit.status, submit.code()), (422, "browser_not_configured"), "{}", submit.text);
    let begun = api.acme.post("/v1/sessions", &json!({"agent": "surfer"})).await;
    assert_eq!((begun.status, begun.code()), (422, "browser_not_configured"), "{}", begun.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_without_its_program_does_not_start() {
    let mut fleet = Fleet::start().await;
    fleet.set("LONGHAUL__BROWSER__PROGRAM", &format!("{PROGRAM}-that-is-not-there"));
    let error = WorkerBuilder::new(fleet.config()).build().err().unwrap().to_string();
    assert!(error.contains("browser.program, /usr/bin/chromium-headless-shell-that-is-not-there, is not a program"));
}
