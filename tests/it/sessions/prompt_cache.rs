//! Prompt caches of providers: what a long session sends is served from them, through deaths, retries, approvals and a
//! compression, and what they serve is recorded and priced.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use longhaul_config::PriceConfig;
use longhaul_domain::{ApiKeyId, ExecutionId};
use longhaul_sdk::{AgentSpec, ToolEffect, spec::ModelSpec};
use longhaul_store::human_requests::{Decider, NewDecision, Verdict};
use longhaul_testkit::model::{
    CacheCount, CacheStub, Captured, Gate, Reply, ev_gate, ev_text, reply_calls, reply_events, reply_status, reply_text,
};
use longhaul_worker::WorkerBuilder;
use serde_json::{Value, json};

use super::{Service, id_of};
use crate::{
    support::{
        fleet::{Fleet, FleetWorker, PATIENCE},
        wait::eventually,
    },
    worker::{
        journal::quick_fleet,
        kit::{TestTool, agent_with},
    },
};

const MESSAGES: usize = 10;
const TURNS_PER_MESSAGE: usize = 10;
/// Calls of a reply with more blocks than Anthropic searches for an entry.
const MANY_CALLS: usize = 12;
/// Delay of a retry after an `llm_error`.
const RETRY: Duration = Duration::from_secs(10);
/// Time until an approval.
const DECISION: Duration = Duration::from_secs(60);

/// A fleet whose providers `custom` and `anthropic` are the model server, with prices.
async fn cached_fleet() -> Fleet {
    let mut fleet = quick_fleet().await;
    let url = fleet.llm.url();
    for (name, value) in [
        ("CUSTOM__PROMPT_CACHE", "on"),
        ("ANTHROPIC__KIND", "anthropic"),
        ("ANTHROPIC__BASE_URL", &url),
        ("ANTHROPIC__DEFAULT_MODEL", "claude"),
    ] {
        fleet.set(&format!("LONGHAUL__LLM__PROVIDERS__{name}"), value);
    }
    fleet
}

/// An agent with a prompt long enough to be cached.
fn cached_agent(provider: &str) -> AgentSpec {
    let mut agent = AgentSpec {
        approvals: serde_json::from_value(json!({ "rules": [{ "tool": "pay", "access": "ask" }] })).unwrap(),
        model: ModelSpec { provider: Some(provider.into()), ..ModelSpec::default() },
        ..agent_with(&["look", "pay"])
    };
    agent.prompts.conversation = "You keep the books. ".repeat(300);
    agent.limits.context_tokens = 24_000;
    agent
}

/// The model: ten turns for each message.
#[derive(Clone, Default)]
struct Plan(Arc<Mutex<PlanState>>);

#[derive(Default)]
struct PlanState {
    /// Idempotency keys of the turns, in order.
    turns: Vec<String>,
    failed: bool,
    compressions: usize,
    /// Turns whose first reply stands in its middle, by number.
    stood: HashMap<usize, Gate>,
}

impl Plan {
    fn reply(&self, request: &Captured) -> Reply {
        let mut state = self.0.lock().unwrap();
        if request.body.to_string().contains("You compress the middle") {
            state.compressions += 1;
            return reply_text("They looked at many books.");
        }
        let key = request.idempotency_key.clone().unwrap();
        let known = state.turns.iter().position(|turn| *turn == key);
        let number = known.unwrap_or(state.turns.len());
        if number % TURNS_PER_MESSAGE == 7 && known.is_none() && !std::mem::replace(&mut state.failed, true) {
            return reply_status(500, "try again");
        }
        if known.is_none() {
            state.turns.push(key);
            state.failed = false;
        }
        match number % TURNS_PER_MESSAGE {
            4 if !state.stood.contains_key(&number) => {
                let gate = state.stood.entry(number).or_default().clone();
                reply_events([ev_text("I look at"), ev_gate(&gate)])
            }
            2 => reply_calls((0..MANY_CALLS).map(|at| ("look", json!({ "value": format!("{number}.{at}") })))),
            6 => reply_calls([("pay", json!({ "value": number }))]),
            9 => reply_text(&format!("answer {number}")),
            _ => reply_calls([("look", json!({ "value": number }))]),
        }
    }

    /// The gate of a reply that stands for the first time.
    fn stands(&self, number: usize) -> Option<Gate> {
        self.0.lock().unwrap().stood.get(&number).cloned()
    }
}

struct Play {
    service: Service,
    cache: CacheStub,
    plan: Plan,
}

impl Play {
    async fn open(provider: &str) -> Self {
        let mut fleet = cached_fleet().await;
        fleet.set("LONGHAUL__WORKER__LEASE_SECONDS", "60");
        let service = Service::of(fleet, cached_agent(provider)).await;
        let (cache, plan) = (service.fleet.llm.cache_prompts(), Plan::default());
        let of_model = plan.clone();
        service.fleet.llm.answer_with(move |request| of_model.reply(request));
        Self { service, cache, plan }
    }

    fn worker(&self) -> FleetWorker {
        let look = TestTool::new("look", ToolEffect::ReadOnly, |_, value, _| {
            Ok(format!("book {value}: {}", "x".repeat(600)).into())
        });
        let pay = TestTool::new("pay", ToolEffect::SideEffect, |_, _, _| Ok("paid".into()));
        self.service.fleet.worker_with(|builder| builder.tool(look).unwrap().tool(pay).unwrap())
    }

    /// Lets time pass for the execution and the cache.
    async fn advance(&self, time: Duration) {
        self.service.fleet.advance(time).await;
        self.cache.advance(time);
    }

    async fn approve(&self, id: ExecutionId) {
        let store = &self.service.fleet.store;
        for request in store.requests_of(id).await.unwrap() {
            let decision = NewDecision {
                verdict: Verdict::Approve,
                hash: request.hash,
                by: Decider { key_id: ApiKeyId(uuid::Uuid::nil()), key_name: "ops".into(), person: None },
                reason: None,
            };
            let _ = store.decide_request(self.service.api.tenant, request.id, &decision).await;
        }
    }

    /// Waits until the execution is parked for `reason`.
    async fn until_waits(&self, id: ExecutionId, reason: &str) {
        let what = format!("the execution waits for {reason}");
        self.service.fleet.until(id, &what, |row| row["wait_reason"] == reason).await;
    }

    /// One message: its worker dies in mid-reply, a call is approved, and a failed model call is retried.
    async fn message(&self, session: &str, number: usize, worker: FleetWorker) -> FleetWorker {
        let id = id_of(&self.service.send(session, &format!("message {number}")).await);
        let fifth = number * TURNS_PER_MESSAGE + 4;
        let gate = eventually("the fifth reply stands", PATIENCE, async || {
            self.plan.stands(fifth).ok_or_else(|| format!("{} turns", self.plan.0.lock().unwrap().turns.len()))
        })
        .await;
        gate.reached().await;
        worker.kill().await;
        self.service.fleet.bury_workers().await;
        let worker = self.worker();
        self.until_waits(id, "approval").await;
        self.advance(DECISION).await;
        self.approve(id).await;
        self.until_waits(id, "retry_backoff").await;
        self.advance(RETRY).await;
        let row = self.service.fleet.ended(id).await;
        assert_eq!(row["status"], "FINISHED", "{row}");
        worker
    }
}

fn sum(counts: &[CacheCount], of: impl Fn(&CacheCount) -> usize) -> usize {
    counts.iter().map(of).sum()
}

async fn is_served_from_cache(provider: &str) {
    let play = Play::open(provider).await;
    let session = play.service.begin(json!({})).await;
    let mut worker = play.worker();
    for number in 0..MESSAGES {
        worker = play.message(&session, number, worker).await;
    }
    let state = play.plan.0.lock().unwrap();
    assert_eq!((state.turns.len(), state.compressions), (MESSAGES * TURNS_PER_MESSAGE, 1));
    assert_eq!(state.stood.len(), MESSAGES);
    let counts = play.cache.counts();
    let (read, servable) = (sum(&counts, |count| count.read), sum(&counts, |count| count.servable));
    let prompts = sum(&counts, |count| count.prompt);
    assert!(servable * 10 > prompts * 8, "{servable} of {prompts} tokens could be served: {counts:?}");
    assert!(read * 100 >= servable * 95, "{read} of {servable} tokens were served: {counts:?}");
    let mut bodies = HashMap::new();
    for request in play.service.fleet.llm.requests() {
        let key = request.idempotency_key.clone().unwrap();
        let first = bodies.entry(key).or_insert_with(|| request.raw.clone());
        assert_eq!(*first, request.raw, "a repeated request has the same bytes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn openai_serves_a_long_session_from_cache() {
    is_served_from_cache("custom").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn anthropic_serves_a_long_session_from_cache() {
    is_served_from_cache("anthropic").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cached_tokens_are_recorded_and_priced() {
    let service = Service::of(cached_fleet().await, cached_agent("anthropic")).await;
    let mut config = service.fleet.config();
    let (input, output) = ("1".parse().unwrap(), "0".parse().unwrap());
    let price = PriceConfig { model: "*".into(), input, output, cached_input: None, cache_write_input: None };
    config.llm.providers.get_mut("anthropic").unwrap().prices = vec![price];
    let cache = service.fleet.llm.cache_prompts();
    service.fleet.llm.answer_with(|_| reply_text("yes"));
    let look = TestTool::new("look", ToolEffect::ReadOnly, |_, _, _| Ok("seen".into()));
    let pay = TestTool::new("pay", ToolEffect::SideEffect, |_, _, _| Ok("paid".into()));
    let builder = WorkerBuilder::new(config).tool(look).unwrap().tool(pay).unwrap();
    let _worker = service.fleet.worker_with(|_| builder);
    let session = service.begin(json!({})).await;
    service.say(&session, "one").await;
    let id = service.say(&session, "two").await["id"].clone();
    let [first, second] = cache.counts()[..] else { panic!("{:?}", cache.counts()) };
    assert_eq!((first.read, first.written), (0, first.prompt), "{first:?}");
    assert!(second.read >= first.prompt && second.written == second.prompt - second.read, "{second:?}");

    let path = format!("/v1/executions/{}", id.as_str().unwrap());
    let usage = &service.api.acme.get(&path).await.body["usage"];
    let counted = json!([second.prompt, second.read, second.written]);
    assert_eq!(json!([usage["input_tokens"], usage["cached_tokens"], usage["cache_write_tokens"]]), counted, "{usage}");
    // A tenth of the input price for what was read, 1.25 times it for what was written.
    let cost = (second.read as f64 * 0.1 + second.written as f64 * 1.25) / 1e6;
    assert!((usage["cost_usd"].as_f64().unwrap() - cost).abs() < 1e-8, "{usage}, not {cost}");
    let steps = service.api.acme.get(&format!("{path}/steps")).await.body;
    let turn = steps["steps"].as_array().unwrap().iter().find(|step| step["kind"] == "turn").cloned().unwrap();
    assert_eq!(json!([turn["cached_tokens"], turn["cache_write_tokens"]]), json!([second.read, second.written]));
    let view: Value = sqlx::query_scalar(
        "select jsonb_build_array(cached_tokens, cache_write_tokens) from execution_usage \
         where execution_id = $1::uuid",
    )
    .bind(id.as_str())
    .fetch_one(&service.fleet.db.pool)
    .await
    .unwrap();
    assert_eq!(view, json!([second.read, second.written]));
}
