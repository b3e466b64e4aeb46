//! A definition, a tool and a validator in Rust, as an application outside the workspace has them: the code of the
//! example.

#[path = "../../../examples/typed-worker/src/expenses.rs"]
mod expenses;

use std::time::Duration;

use longhaul_api::ApiOptions;
use longhaul_cli::compose;
use longhaul_domain::ExecutionId;
use longhaul_guards::http::{self, HttpOptions};
use longhaul_store::tenants::api_keys::Scope;
use longhaul_testkit::model::{reply_calls, reply_text};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::support::fleet::{Fleet, FleetWorker};

/// The real API over the fleet's database, with an API key.
pub(crate) struct Api {
    pub(crate) url: String,
    pub(crate) key: String,
    pub(crate) client: reqwest::Client,
    _serving: AbortOnDropHandle<anyhow::Result<()>>,
}

impl Api {
    pub(crate) async fn start(fleet: &mut Fleet) -> Self {
        fleet.set("LONGHAUL_API_KEY_PEPPER", "pepper of the test, thirty-two characters");
        let config = fleet.config();
        let pepper = compose::pepper(&config).unwrap();
        let key = fleet.store.issue_api_key(fleet.tenant, "test", Scope::ALL, &pepper).await.unwrap().key;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let store = fleet.store.clone();
        let serving = async move {
            compose::serve_api(&config, store, ApiOptions::default(), listener, CancellationToken::new()).await
        };
        Self {
            url,
            key: key.expose_secret().to_owned(),
            client: http::client(&HttpOptions::default()).unwrap(),
            _serving: AbortOnDropHandle::new(tokio::spawn(serving)),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let request = self.client.get(format!("{}{path}", self.url)).bearer_auth(&self.key);
        request.send().await.unwrap().json().await.unwrap()
    }

    async fn submit(&self, input: Value) -> (u16, Value) {
        let body = json!({ "definition": "expense-check", "input": input });
        let request = self.client.post(format!("{}/executions", self.url)).bearer_auth(&self.key).json(&body);
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }
}

fn typed_worker(fleet: &Fleet) -> FleetWorker {
    fleet.worker_with(|builder| {
        let builder = builder.agent(expenses::agent()).unwrap().tool(expenses::ExchangeRate).unwrap();
        builder.definition(expenses::ExpenseCheck).unwrap()
    })
}

fn lines(currency: &str) -> Value {
    json!({"currency": currency,
        "lines": [{"description": "train", "amount": 20.0}, {"description": "tea", "amount": 3.5}]})
}

#[tokio::test]
async fn typed_definition_runs_only_on_workers_with_it() {
    let mut fleet = Fleet::start().await;
    let api = Api::start(&mut fleet).await;
    // The definition becomes known with the first worker that has it, and stays known after that worker ends.
    let worker = typed_worker(&fleet);
    fleet.published("expense-check").await;
    worker.drain().await;
    let definition = api.get("/definitions/expense-check").await.to_string();
    for part in ["Expense check", "\"currency\"", "UNKNOWN_CURRENCY", "total_eur"] {
        assert!(definition.contains(part), "no {part} in {definition}");
    }
    assert!(api.get("/definitions").await.to_string().contains("expense-check"));

    for (input, path) in [
        (json!({"currency": "USD", "lines": [{"description": "train", "amount": "twenty"}]}), "/input/lines/0/amount"),
        (json!({"currency": "USD", "lines": [], "when": "now"}), "/input"),
        (json!({"lines": []}), "/input"),
    ] {
        let (status, problem) = api.submit(input).await;
        assert_eq!(status, 422, "{problem}");
        assert!(problem["errors"][0]["path"].as_str().unwrap().starts_with(path), "{problem}");
    }
    assert_eq!(fleet.json("select to_jsonb(count(*)) from executions").await, 0);

    let stock = fleet.worker();
    let (status, submitted) = api.submit(lines("USD")).await;
    assert_eq!(status, 201, "{submitted}");
    let id = ExecutionId(submitted["id"].as_str().unwrap().parse().unwrap());
    fleet.advance(Duration::from_secs(11)).await;
    let row = fleet.until(id, "it waits for a worker that has it", |row| row["wait_reason"] == "no_worker").await;
    assert_eq!((&row["status"], &row["attempts"]), (&json!("PENDING"), &json!(0)));

    let rate = || reply_calls([("exchange_rate", json!({"currency": "USD"}))]);
    for reply in [rate(), reply_text("{\"total_eur\": 23.5}"), rate(), reply_text("{\"total_eur\": 21.15}")] {
        fleet.llm.push(reply);
    }
    let typed = typed_worker(&fleet);
    let row = fleet.ended(id).await;
    assert_eq!((&row["status"], &row["output"]), (&json!("FINISHED"), &json!({"total_eur": 21.15})), "{row}");
    let requests = fleet.llm.requests();
    assert!(requests[0].last_text().contains("- train: 20.0\n- tea: 3.5"), "{}", requests[0].last_text());
    assert!(requests[2].last_text().starts_with("`total_eur` must be"), "{}", requests[2].last_text());

    // A stop by the definition's validator carries its own failure code.
    for reply in [reply_calls([("exchange_rate", json!({"currency": "XXX"}))]), reply_text("{\"total_eur\": 0}")] {
        fleet.llm.push(reply);
    }
    let (_, submitted) = api.submit(lines("XXX")).await;
    let row = fleet.ended(ExecutionId(submitted["id"].as_str().unwrap().parse().unwrap())).await;
    assert_eq!((&row["status"], &row["failure_code"]), (&json!("FAILED"), &json!("UNKNOWN_CURRENCY")));
    typed.drain().await;
    stock.drain().await;
}
