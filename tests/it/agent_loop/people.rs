//! Shared by tests of approvals and questions: an agent with a policy, tools with gates, and people who decide.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use longhaul_agent::probe::Probe;
use longhaul_domain::{ApiKeyId, ExecutionId, RequestKind};
use longhaul_sdk::{
    AgentSpec, DefinitionSpec, JsonSchema, Tool, ToolCallContext, ToolEffect, ToolFailure, ToolOutput, async_trait,
    spec::ToolRef,
};
use longhaul_store::human_requests::{Decider, HumanRequest, NewDecision, Verdict};
use longhaul_testkit::model::{Gate, Reply, ev_call, reply_events, reply_text};
use longhaul_worker::WorkerBuilder;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::support::{
    fleet::{Fleet, FleetWorker, PATIENCE, agent},
    wait::eventually,
};

/// Arguments of every tool here.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Payment {
    amount: i64,
    #[serde(default)]
    to: String,
    /// Redacted, as its schema marks it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(extend("writeOnly" = true))]
    pin: String,
}

/// A tool that waits at its gate, if it has one, and records its arguments.
#[derive(Clone)]
struct Clerk {
    name: &'static str,
    effect: ToolEffect,
    gate: Option<Gate>,
    given: Given,
}

type Given = Arc<Mutex<BTreeMap<&'static str, Vec<Value>>>>;

#[async_trait]
impl Tool for Clerk {
    type Args = Payment;

    fn name(&self) -> &str {
        self.name
    }

    fn description(&self) -> &str {
        "Does its work."
    }

    fn effect(&self) -> ToolEffect {
        self.effect
    }

    async fn call(&self, args: Payment, _context: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
        if let Some(gate) = &self.gate {
            gate.pass().await;
        }
        let answer = args.amount.to_string();
        self.given.lock().unwrap().entry(self.name).or_default().push(serde_json::to_value(args).unwrap());
        Ok(answer.into())
    }
}

/// A product with an agent of four tools: `look` reads; `pay`, `note` and `wipe` have side effects.
pub(crate) struct Office {
    pub(crate) fleet: Fleet,
    pub(crate) gate: Gate,
    given: Given,
}

impl Office {
    /// Opens an office with this approval policy. `look` waits at a closed gate if `is_gated`.
    pub(crate) async fn open(approvals: Value, is_gated: bool) -> Self {
        let mut fleet = Fleet::start().await;
        for (name, seconds) in [("LEASE", "2"), ("RENEW", "0.5"), ("REAPER_TICK", "0.3"), ("SWEEP_TICK", "0.3")] {
            fleet.set(&format!("LONGHAUL__WORKER__{name}_SECONDS"), seconds);
        }
        let tools = ["look", "pay", "note", "wipe", "ask_caller"];
        let agent = AgentSpec {
            tools: tools.map(|name| ToolRef::Name(name.into())).to_vec(),
            references: true,
            approvals: serde_json::from_value(approvals).unwrap(),
            ..agent("a")
        };
        fleet.apply(&agent, &DefinitionSpec::new("d", "a")).await;
        let gate = Gate::new();
        if !is_gated {
            gate.open();
        }
        Self { fleet, gate, given: Given::default() }
    }

    /// The model replies with `calls` and, when their results are there, with an answer.
    pub(crate) fn script(&self, calls: Vec<(&'static str, &'static str, Value)>) {
        self.fleet.llm.answer_with(move |request| -> Reply {
            if request.replies() > 0 {
                return reply_text(r#"{"done": true}"#);
            }
            reply_events(calls.iter().map(|(id, name, arguments)| ev_call(id, name, arguments)))
        });
    }

    pub(crate) fn hire(&self, builder: WorkerBuilder, probe: Probe) -> WorkerBuilder {
        let clerk = |name, effect, gate| Clerk { name, effect, gate, given: Arc::clone(&self.given) };
        let builder = builder.tool(clerk("look", ToolEffect::ReadOnly, Some(self.gate.clone()))).unwrap();
        let names = ["pay", "note", "wipe"];
        let hire = |builder: WorkerBuilder, name| builder.tool(clerk(name, ToolEffect::SideEffect, None)).unwrap();
        names.into_iter().fold(builder, hire).probe(probe)
    }

    pub(crate) fn worker(&self) -> FleetWorker {
        self.fleet.worker_with(|builder| self.hire(builder, Probe::default()))
    }

    pub(crate) async fn submit(&self) -> ExecutionId {
        self.fleet.submit("d", json!({"task": "pay"})).await
    }

    /// Arguments of each call of a tool.
    pub(crate) fn given(&self, tool: &str) -> Vec<Value> {
        self.given.lock().unwrap().get(tool).cloned().unwrap_or_default()
    }

    /// Requests to people that the execution has made so far.
    pub(crate) async fn wanted(&self, id: ExecutionId) -> Vec<HumanRequest> {
        self.fleet.store.requests_of(id).await.unwrap()
    }

    /// Waits until the `count`-th request is there and the execution is parked. Returns the request.
    pub(crate) async fn waits(&self, id: ExecutionId, count: usize) -> HumanRequest {
        eventually("the execution waits for people", PATIENCE, async || {
            let (requests, row) = (self.wanted(id).await, self.fleet.row(id).await);
            let reason = row["wait_reason"].as_str().unwrap_or_default();
            match requests.get(count - 1) {
                Some(request) if matches!(reason, "approval" | "input") => Ok(request.clone()),
                _ => Err(format!("{} requests, {row}", requests.len())),
            }
        })
        .await
    }

    /// Stores a person's decision, as the API does.
    pub(crate) async fn decide(&self, request: &HumanRequest, verdict: Verdict, reason: Option<&str>) {
        let decision = NewDecision {
            verdict,
            hash: request.hash,
            by: Decider { key_id: ApiKeyId(uuid::Uuid::nil()), key_name: "ops".into(), person: None },
            reason: reason.map(str::to_owned),
        };
        let decided = self.fleet.store.decide_request(self.fleet.tenant, request.id, &decision).await.unwrap();
        assert!(decided.is_some(), "{request:?}");
    }

    /// Results in the model's last request, by call id.
    pub(crate) fn results(&self) -> BTreeMap<String, String> {
        let requests = self.fleet.llm.requests();
        let last = requests.last().expect("a request");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let results = last.messages().iter().filter(|message| message["role"] == "tool");
        results.map(|message| (text(&message["tool_call_id"]), text(&message["content"]))).collect()
    }

    pub(crate) async fn finished(&self, id: ExecutionId) {
        let row = self.fleet.ended(id).await;
        assert_eq!(row["status"], "FINISHED", "{row}");
    }

    /// Moves the clock past the expiry of every request.
    pub(crate) async fn let_expire(&self) {
        self.fleet.advance(Duration::from_secs(25 * 3_600)).await;
    }

    /// Number of requests of a kind that an execution ever made.
    pub(crate) async fn count(&self, id: ExecutionId, kind: RequestKind) -> usize {
        self.wanted(id).await.iter().filter(|request| request.kind == kind).count()
    }
}

/// `pay` needs an approval; everything else runs.
pub(crate) fn pay_needs_a_person() -> Value {
    json!({"rules": [{"tool": "pay", "access": "ask"}]})
}
