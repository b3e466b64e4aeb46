//! Reservations are upper bounds: no call is charged more than was reserved for it, and little of a cap stays unused.
//! The fake provider counts with another tokenizer than the product, bills what it counts, and writes as much as it
//! may.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering::SeqCst},
    },
};

use longhaul_agent::probe::Point;
use longhaul_config::{PriceConfig, ProviderKind};
use longhaul_domain::ExecutionId;
use longhaul_sdk::spec::{AgentSpec, BudgetSpec, ModelSpec, OnExhausted, ToolRef};
use longhaul_sdk::{ToolEffect, Usd};
use longhaul_store::executions::budgets::{Caps, Ledger};
use longhaul_store::tenants::scope::TenantScope;
use longhaul_testkit::model::{Captured, Reply, ev_finish, ev_text, reply_calls, reply_events};
use longhaul_worker::WorkerBuilder;
use serde_json::{Value, json};

use super::journal::{Holds, quick_fleet};
use super::kit::{TestTool, agent_with, definition};
use crate::support::fleet::{Fleet, PATIENCE, agent};
use crate::support::wait::eventually;

/// Prices of a token sent and a token received in billionths of a dollar: one and ten dollars per million.
const PRICES: (u64, u64) = (1_000, 10_000);

fn tokens_of(text: &str) -> u64 {
    bpe_openai::o200k_base().count(text) as u64
}

/// Tokens that the provider counts for a prompt: texts, calls and tools, and a few tokens around each message.
fn prompt_tokens(request: &Captured) -> u64 {
    fn texts(value: &Value) -> u64 {
        match value {
            Value::String(text) => tokens_of(text),
            Value::Array(items) => items.iter().map(texts).sum(),
            Value::Object(fields) => fields.iter().map(|(name, value)| tokens_of(name) + texts(value)).sum(),
            Value::Null | Value::Bool(_) | Value::Number(_) => 1,
        }
    }
    let around = 4 * request.messages().len() as u64 + 3;
    ["system", "messages", "tools"].iter().map(|part| texts(&request.body[part])).sum::<u64>() + around
}

fn limit_of(request: &Captured) -> Option<u64> {
    ["max_tokens", "max_completion_tokens"].iter().find_map(|name| request.body[name].as_u64())
}

/// A fake provider that keeps its own accounts.
#[derive(Clone)]
struct Provider {
    billed: Arc<AtomicI64>,
    tokens: Arc<AtomicI64>,
    /// Tokens of each reply before the request's limit.
    writes: Arc<AtomicU64>,
    keeps_limits: bool,
}

impl Provider {
    fn writing(tokens: u64) -> Self {
        Self { billed: Arc::default(), tokens: Arc::default(), writes: Arc::new(tokens.into()), keeps_limits: true }
    }

    /// Replies with as many tokens as the request's limit allows.
    fn reply(&self, request: &Captured) -> Reply {
        let (writes, limit) = (self.writes.load(SeqCst), limit_of(request).filter(|_| self.keeps_limits));
        let written = limit.map_or(writes, |limit| limit.min(writes));
        let finish = if written < writes { "length" } else { "stop" };
        self.bill(request, reply_events([ev_text(r#"{"done": true}"#), ev_finish(finish)]), written)
    }

    fn bill(&self, request: &Captured, reply: Reply, written: u64) -> Reply {
        let sent = prompt_tokens(request);
        self.billed.fetch_add((sent * PRICES.0 + written * PRICES.1) as i64, SeqCst);
        self.tokens.fetch_add((sent + written) as i64, SeqCst);
        reply.usage(sent, written)
    }

    fn billed(&self) -> i64 {
        self.billed.load(SeqCst)
    }
}

/// Builder of a worker whose providers `custom` and `anthropic` have prices.
fn priced(fleet: &Fleet) -> WorkerBuilder {
    let mut config = fleet.config();
    let custom = config.llm.providers.get_mut("custom").unwrap();
    custom.prices = vec![PriceConfig {
        model: "*".into(),
        input: Usd::from_nanos(PRICES.0 as i64 * 1_000_000),
        output: Usd::from_nanos(PRICES.1 as i64 * 1_000_000),
        cached_input: None,
        cache_write_input: None,
    }];
    let mut anthropic = custom.clone();
    anthropic.kind = ProviderKind::Anthropic;
    anthropic.default_model = Some("claude".into());
    config.llm.providers.insert("anthropic".into(), anthropic);
    WorkerBuilder::new(config)
}

fn money(text: &str) -> BudgetSpec {
    BudgetSpec { max_cost_usd: Some(text.parse().unwrap()), ..BudgetSpec::default() }
}

async fn submit(fleet: &Fleet, input: Value, budget: BudgetSpec) -> ExecutionId {
    let mut new = fleet.new_execution("d", input).await;
    new.budget = Some(budget);
    fleet.submit_new(new).await
}

async fn ledger(fleet: &Fleet, id: ExecutionId) -> Ledger {
    fleet.store.read_budget(&TenantScope::from(fleet.tenant), id).await.unwrap().unwrap()
}

async fn waits_for_budget(fleet: &Fleet, id: ExecutionId) {
    fleet.until(id, "it waits for the budget", |row| row["wait_reason"] == "budget").await;
}

#[tokio::test]
async fn endless_reply_is_cut_at_budget_and_asked_again() {
    for provider in ["custom", "anthropic"] {
        let fleet = Fleet::start().await;
        let provider_books = Provider::writing(20_000);
        let books = provider_books.clone();
        fleet.llm.answer_with(move |request| books.reply(request));
        let model = ModelSpec { provider: Some(provider.into()), ..ModelSpec::default() };
        fleet.apply(&AgentSpec { model, ..agent("a") }, &definition("d", &["is_valid_json"])).await;
        let _worker = fleet.worker_with(|_| priced(&fleet));
        let id = submit(&fleet, json!({}), money("0.05")).await;
        waits_for_budget(&fleet, id).await;
        let before = ledger(&fleet, id).await;
        assert_eq!(before.spent.cost.nanos(), provider_books.billed(), "{provider}");
        assert!(provider_books.billed() <= 50_000_000, "{provider}: {before:?}");
        assert!(provider_books.billed() >= 42_500_000, "{provider}: 85 % are usable, {before:?}");
        assert_eq!((before.over_limit.calls, before.waiting, before.spent.calls), (0, 1, 1), "{provider}");
        let steps =
            fleet.json("select jsonb_agg(jsonb_build_array(state, failure_code)) from steps where kind = 'turn'").await;
        assert_eq!(steps, json!([["spent", "budget_exhausted"]]), "{provider}");
        // A raise that does not allow a whole reply wakes nothing: the budget has paid for half a reply already.
        let raised = |text: &str| Caps { max_cost: Some(text.parse().unwrap()), ..Caps::default() };
        assert!(fleet.store.raise_budget(id, raised("0.1")).await.unwrap().is_empty(), "{provider}");
        provider_books.writes.store(100, SeqCst);
        fleet.store.raise_budget(id, raised("1")).await.unwrap();
        assert_eq!(fleet.ended(id).await["status"], "FINISHED", "{provider}");
        let limits: Vec<_> = fleet.llm.requests().iter().map(limit_of).collect();
        assert!(limits[0].unwrap() < 8_192 && limits[1..] == [Some(8_192)], "{provider}: {limits:?}");
        assert_eq!(ledger(&fleet, id).await.spent.cost.nanos(), provider_books.billed(), "{provider}");
    }
}

#[tokio::test]
async fn cut_reply_fails_where_the_budget_says_so() {
    let fleet = Fleet::start().await;
    let provider = Provider::writing(20_000);
    fleet.llm.answer_with(move |request| provider.reply(request));
    fleet.apply(&agent("a"), &definition("d", &["is_valid_json"])).await;
    let _worker = fleet.worker_with(|_| priced(&fleet));
    let id = submit(&fleet, json!({}), BudgetSpec { on_exhausted: OnExhausted::Fail, ..money("0.05") }).await;
    let row = fleet.ended(id).await;
    assert_eq!((&row["failure_code"], fleet.llm.requests().len()), (&json!("budget_exhausted"), 1));
}

#[tokio::test]
async fn limit_in_extra_is_reserved_and_lowered() {
    let fleet = Fleet::start().await;
    let provider = Provider::writing(300);
    fleet.llm.answer_with(move |request| provider.reply(request));
    let extra = BTreeMap::from([("max_completion_tokens".to_owned(), json!(700))]);
    let model = ModelSpec { max_output_tokens: Some(5_000), extra, ..ModelSpec::default() };
    fleet.apply(&AgentSpec { model, ..agent("a") }, &definition("d", &["is_valid_json"])).await;
    let _worker = fleet.worker_with(|_| priced(&fleet));
    for (cap, sent) in [("0.05", 700..=700), ("0.0065", 512..=699)] {
        let id = submit(&fleet, json!({}), money(cap)).await;
        assert_eq!(fleet.ended(id).await["status"], "FINISHED");
        let request = fleet.llm.requests().pop().unwrap();
        let limit = request.body["max_completion_tokens"].as_u64().unwrap();
        assert!(sent.contains(&limit) && request.body.get("max_tokens").is_none(), "{cap}: {}", request.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn resumed_call_is_sent_with_the_granted_limit() {
    let fleet = quick_fleet().await;
    let provider = Provider::writing(100);
    fleet.llm.answer_with(move |request| provider.reply(request));
    fleet.apply(&agent("a"), &definition("d", &["is_valid_json"])).await;
    let id = submit(&fleet, json!({}), money("0.05")).await;
    let holds = Holds::default();
    holds.plan(id, Point::TurnAnswered, 1);
    let doomed = fleet.worker_with(|_| priced(&fleet).probe(holds.probe()));
    holds.all_held().await;
    doomed.kill().await;
    fleet.bury_workers().await;
    let _worker = fleet.worker_with(|_| priced(&fleet));
    waits_for_budget(&fleet, id).await;
    assert_eq!(ledger(&fleet, id).await.estimated_calls, 1);
    fleet.store.raise_budget(id, Caps { max_cost: Some("5".parse().unwrap()), ..Caps::default() }).await.unwrap();
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    let sent: Vec<_> =
        fleet.llm.requests().iter().map(|request| (request.idempotency_key.clone(), limit_of(request))).collect();
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[0], sent[1]);
    assert!(sent[0].1.unwrap() < 8_192);
}

#[tokio::test]
async fn charge_above_the_limit_is_shown() {
    let fleet = Fleet::start().await;
    let provider = Provider { keeps_limits: false, ..Provider::writing(20_000) };
    let books = provider.clone();
    fleet.llm.answer_with(move |request| books.reply(request));
    fleet.apply(&agent("a"), &definition("d", &["is_valid_json"])).await;
    let _worker = fleet.worker_with(|_| priced(&fleet));
    let id = submit(&fleet, json!({}), money("0.1")).await;
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    let ledger = ledger(&fleet, id).await;
    assert_eq!((ledger.spent.cost.nanos(), ledger.over_limit.calls), (provider.billed(), 1));
    assert!(ledger.over_limit.cost.nanos() >= provider.billed() - 100_000_000, "{ledger:?}");
}

#[tokio::test]
async fn call_without_a_bound_is_not_made() {
    let fleet = Fleet::start().await;
    let extra = BTreeMap::from([("web_search_options".to_owned(), json!({}))]);
    let model = ModelSpec { extra, ..ModelSpec::default() };
    fleet.apply(&AgentSpec { model, ..agent("a") }, &definition("d", &["is_valid_json"])).await;
    let _worker = fleet.worker_with(|_| priced(&fleet));
    let id = submit(&fleet, json!({}), money("1")).await;
    assert_eq!(fleet.ended(id).await["failure_code"], "cost_unbounded");
    assert!(fleet.llm.requests().is_empty());
}

/// About `bytes` bytes of text of this kind, whose tokens are hard to estimate.
fn dense(kind: &str, bytes: usize) -> String {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut text = String::new();
    while text.len() < bytes {
        match kind {
            "cjk" => text.push(char::from_u32(0x4e00 + next(20_000) as u32).unwrap()),
            "base64" => text.push(char::from(
                b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[next(64) as usize],
            )),
            "digits" => text.push(char::from(b'0' + next(10) as u8)),
            "code" => text.push_str(&format!(
                "var {}={}[{}]||!0;",
                char::from(b'a' + next(26) as u8),
                char::from(b'a' + next(26) as u8),
                next(99)
            )),
            "english" => {
                text.push_str(["the ", "budget ", "of ", "a tree ", "holds ", "every ", "call. "][next(7) as usize])
            }
            other => panic!("{other}"),
        }
    }
    text
}

const KINDS: [&str; 5] = ["cjk", "base64", "digits", "code", "english"];

fn tokens(max: u64) -> BudgetSpec {
    BudgetSpec { max_tokens: Some(u32::try_from(max).unwrap()), ..BudgetSpec::default() }
}

/// Fails unless the run stopped within its cap with at least 85 % of it used.
async fn stopped_near(fleet: &Fleet, id: ExecutionId, provider: &Provider, cap: u64, what: &str) {
    fleet.ended(id).await;
    let (ledger, spent) = (ledger(fleet, id).await, provider.tokens.load(SeqCst) as u64);
    assert_eq!(ledger.spent.tokens as u64, spent, "{what}: {ledger:?}");
    assert!(spent <= cap && ledger.over_limit.calls == 0, "{what}: {spent} of {cap}, {ledger:?}");
    assert!(spent * 100 >= cap * 85, "{what}: {spent} of {cap}, {ledger:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn second_turn_may_use_85_percent_of_a_cap() {
    for kind in KINDS {
        let fleet = Fleet::start().await;
        let provider = Provider::writing(1_000_000);
        let books = provider.clone();
        // Calls `look` once, then writes up to the limit and reports that it is done.
        fleet.llm.answer_with(move |request| match request.replies() {
            0 => books.bill(request, reply_calls([("look", json!({}))]), 30),
            _ => {
                let written = limit_of(request).unwrap();
                books.bill(request, reply_events([ev_text("{}"), ev_finish("stop")]), written)
            }
        });
        let looked = dense(kind, 2_000);
        let look = TestTool::new("look", ToolEffect::ReadOnly, move |_, _, _| Ok(looked.clone().into()));
        let model = ModelSpec { max_output_tokens: Some(1_000_000), ..ModelSpec::default() };
        fleet.apply(&AgentSpec { model, ..agent_with(&["look"]) }, &definition("d", &["is_valid_json"])).await;
        let _worker = fleet.worker_with(|_| priced(&fleet).tool(look).unwrap());
        let cap = 60_000;
        let id = submit(&fleet, json!({ "text": dense(kind, 24_000) }), tokens(cap)).await;
        // The first turn is granted all that its byte bound leaves of the cap, and uses thirty tokens of it.
        stopped_near(&fleet, id, &provider, cap, kind).await;
        assert_eq!(fleet.llm.requests().len(), 2, "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn counted_prompt_may_use_85_percent_of_a_cap() {
    for (provider_name, model_name) in [("custom", "gpt-4.1-mini"), ("anthropic", "claude-haiku-4-5")] {
        for kind in KINDS {
            let fleet = Fleet::start().await;
            let provider = Provider::writing(1_000_000);
            let books = provider.clone();
            fleet.llm.answer_with(move |request| {
                let written = limit_of(request).unwrap();
                books.bill(request, reply_events([ev_text("{}"), ev_finish("stop")]), written)
            });
            fleet.llm.count_with(prompt_tokens);
            let model = ModelSpec {
                provider: Some(provider_name.into()),
                name: Some(model_name.into()),
                max_output_tokens: Some(1_000_000),
                ..ModelSpec::default()
            };
            fleet.apply(&AgentSpec { model, ..agent("a") }, &definition("d", &["is_valid_json"])).await;
            let _worker = fleet.worker_with(|_| priced(&fleet));
            let text = dense(kind, 24_000);
            let cap = tokens_of(&text) * 3 / 2;
            let id = submit(&fleet, json!({ "text": text }), tokens(cap)).await;
            stopped_near(&fleet, id, &provider, cap, &format!("{provider_name}, {kind}")).await;
        }
    }
}

/// Runs fifty children with dense prompts under one cap, each with as long a reply as allowed. Returns the amount
/// billed once all have ended or wait for the budget, and the ledger.
async fn fifty_children(fleet: &Fleet, cap: &str) -> (i64, Ledger) {
    let provider = Provider::writing(0);
    let books = provider.clone();
    fleet.llm.answer_with(move |request| {
        let is_parent = request.messages().iter().any(|message| message.to_string().contains("the whole task"));
        if is_parent {
            let task = |n: usize| json!({ "agent": "child", "prompt": format!("{n} {}", dense(KINDS[n % 5], 1_500)) });
            let tasks: Vec<Value> = (0..50).map(task).collect();
            let reply = reply_calls([("spawn_sub_agent", json!({ "tasks": tasks, "strategy": "collect" }))]);
            return books.bill(request, reply, 100);
        }
        let written = limit_of(request).unwrap();
        books.bill(request, reply_events([ev_text("{}"), ev_finish("stop")]), written)
    });
    let model = ModelSpec { max_output_tokens: Some(3_000), ..ModelSpec::default() };
    fleet.store.put_shared_agent(&AgentSpec { model: model.clone(), ..agent("child") }).await.unwrap();
    let spawn = json!({ "name": "spawn_sub_agent", "settings": { "agents": ["child"] } });
    let spawn: ToolRef = serde_json::from_value(spawn).unwrap();
    let parent = AgentSpec { model, tools: vec![spawn], ..agent("a") };
    fleet.apply(&parent, &definition("d", &["is_valid_json"])).await;
    let _worker = fleet.worker_with(|_| priced(fleet));
    let id = submit(fleet, json!({ "task": "the whole task" }), money(cap)).await;
    eventually("every child is over or waits for the budget", PATIENCE, || async {
        let still = "select jsonb_build_array(
                count(*) filter (where parent_id is not null),
                count(*) filter (where finished_at is null and coalesce(wait_reason, '') not in ('budget', 'children'))
            ) from executions";
        let counts = fleet.json(still).await;
        let reserved = ledger(fleet, id).await.reserved.calls;
        if counts == json!([50, 0]) && reserved == 0 { Ok(()) } else { Err(format!("{counts}, {reserved} reserved")) }
    })
    .await;
    (provider.billed(), ledger(fleet, id).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_dense_children_stay_within_one_cap() {
    let fleet = Fleet::start().await;
    let (billed, ledger) = fifty_children(&fleet, "0.4").await;
    assert_eq!((ledger.spent.cost.nanos(), ledger.over_limit.calls), (billed, 0), "{ledger:?}");
    assert!(billed <= 400_000_000, "{billed} billed, {ledger:?}");
    assert!(billed >= 340_000_000, "{billed} billed, {ledger:?}");
    assert!(ledger.waiting > 0, "{ledger:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctored_reservations_overshoot_the_same_cap() {
    let fleet = Fleet::start().await;
    // Reserves a quarter of a call's cost but grants all of it.
    sqlx::raw_sql(
        "alter function longhaul_reserve rename to longhaul_reserve_whole;
        create function longhaul_reserve(
            worker uuid, items call_reservation[]
        ) returns table (place int, verdict text, wake_seq int, reply_limit bigint) language sql as $$
            select * from longhaul_reserve_whole(worker, array(
                select row(i.id, i.token, i.step_key, i.prompt_cost / 4, i.prompt, i.reply_price / 4, i.reply,
                    i.least_reply, i.may_wait)::call_reservation
                from unnest(items) with ordinality as i order by i.ordinality
            ))
        $$",
    )
    .execute(&fleet.db.pool)
    .await
    .unwrap();
    let (billed, ledger) = fifty_children(&fleet, "0.4").await;
    assert!(billed > 400_000_000 && ledger.over_limit.calls > 0, "{billed} billed, {ledger:?}");
}
