//! A run with a scripted model and scripted tools: replies stream on command, and calls wait at gates of their own.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use longhaul_domain::ExecutionId;
use longhaul_sdk::{
    AgentSpec, DefinitionSpec, JsonSchema, Tool, ToolCallContext, ToolEffect, ToolFailure, ToolOutput, async_trait,
    spec::{ModelSpec, ToolRef},
};
use longhaul_store::history::{
    ledger::{EffectState, LedgerEntry},
    read::Bodies,
};
use longhaul_testkit::model::{Captured, Ev, Gate, Reply, ev_call, reply_text};
use longhaul_worker::WorkerBuilder;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::support::{
    fleet::{Fleet, FleetWorker, PATIENCE, agent},
    wait::within,
};

/// Read-only tool: its calls start while the reply streams.
pub(crate) const WORK: &str = "work";
/// Idempotent tool: it changes things once for each idempotency key.
pub(crate) const PUT: &str = "put";
/// Tool with side effects: its calls start when the reply has closed.
pub(crate) const ACT: &str = "act";

/// Starts and ends of calls in order: `+a` when call `a` started, `-a` when it ended.
type Log = Vec<String>;

/// Scripted result of a call, which by default is its `value`.
#[derive(Clone)]
enum Answer {
    Text(String),
    At(String, String),
    Failure(String),
    Panic,
}

/// Hook that receives the name of a starting call.
type OnStart = dyn Fn(&str) + Send + Sync;

#[derive(Default)]
struct Inner {
    gates: BTreeMap<String, Gate>,
    answers: BTreeMap<String, Answer>,
    arguments: BTreeMap<String, Vec<Value>>,
    keys: BTreeMap<String, BTreeMap<String, usize>>,
    on_start: Option<Arc<OnStart>>,
}

/// Scripts and records the calls of a test. Their argument `call` tells them apart.
#[derive(Clone, Default)]
pub(crate) struct Stage {
    inner: Arc<Mutex<Inner>>,
    log: Arc<watch::Sender<Log>>,
}

impl Stage {
    /// Keeps `call` from ending until it is released.
    pub(crate) fn hold(self, call: &str) -> Self {
        self.inner.lock().unwrap().gates.insert(call.into(), Gate::new());
        self
    }

    /// Makes `call` return this text.
    pub(crate) fn answers(self, call: &str, text: &str) -> Self {
        self.answer(call, Answer::Text(text.into()))
    }

    /// Makes `call` return this text and choose `destination` for it.
    pub(crate) fn answers_at(self, call: &str, text: &str, destination: &str) -> Self {
        self.answer(call, Answer::At(text.into(), destination.into()))
    }

    /// Makes `call` fail with `message`.
    pub(crate) fn fails(self, call: &str, message: &str) -> Self {
        self.answer(call, Answer::Failure(message.into()))
    }

    /// Makes `call` panic.
    pub(crate) fn panics(self, call: &str) -> Self {
        self.answer(call, Answer::Panic)
    }

    fn answer(self, call: &str, answer: Answer) -> Self {
        self.inner.lock().unwrap().answers.insert(call.into(), answer);
        self
    }

    /// Lets a held call end.
    pub(crate) fn release(&self, call: &str) {
        self.inner.lock().unwrap().gates[call].open();
    }

    /// Waits until `call` has started.
    pub(crate) async fn started(&self, call: &str) {
        self.seen(&format!("+{call}")).await;
    }

    /// Waits until `call` has ended.
    pub(crate) async fn ended(&self, call: &str) {
        self.seen(&format!("-{call}")).await;
    }

    async fn seen(&self, moment: &str) {
        let mut log = self.log.subscribe();
        let seen = log.wait_for(|log| log.iter().any(|seen| seen == moment));
        within(&format!("`{moment}` is seen"), PATIENCE, seen).await.unwrap();
    }

    /// Starts and ends so far.
    pub(crate) fn log(&self) -> Log {
        self.log.borrow().clone()
    }

    /// Asserts that one moment came before another, as `("-a", "+b")`.
    pub(crate) fn assert_before(&self, earlier: &str, later: &str) {
        let log = self.log();
        let at = |moment: &str| log.iter().position(|seen| seen == moment);
        let (Some(first), Some(second)) = (at(earlier), at(later)) else {
            panic!("{earlier} or {later} not in {log:?}")
        };
        assert!(first < second, "{earlier} not before {later}: {log:?}");
    }

    /// Arguments of the only run of `call`.
    pub(crate) fn arguments(&self, call: &str) -> Value {
        let inner = self.inner.lock().unwrap();
        let given = inner.arguments.get(call).map_or(&[][..], Vec::as_slice);
        let [only] = given else { panic!("call `{call}` ran {} times", given.len()) };
        only.clone()
    }

    /// Number of runs of `call`.
    pub(crate) fn runs(&self, call: &str) -> usize {
        self.inner.lock().unwrap().arguments.get(call).map_or(0, Vec::len)
    }

    /// Registers the tools of this stage.
    pub(crate) fn tools(&self, worker: WorkerBuilder) -> WorkerBuilder {
        let tool = |name, effect| StageTool { name, effect, stage: self.clone() };
        let worker = worker.tool(tool(WORK, ToolEffect::ReadOnly)).unwrap();
        let worker = worker.tool(tool(PUT, ToolEffect::Idempotent)).unwrap();
        worker.tool(tool(ACT, ToolEffect::SideEffect)).unwrap()
    }

    /// Calls `hook` whenever a call starts.
    pub(crate) fn on_start(self, hook: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.inner.lock().unwrap().on_start = Some(Arc::new(hook));
        self
    }

    /// Number of runs of `call` by idempotency key.
    pub(crate) fn keys(&self, call: &str) -> BTreeMap<String, usize> {
        self.inner.lock().unwrap().keys.get(call).cloned().unwrap_or_default()
    }

    /// Records a run of `call` by a tool of the test's own, and keeps it from ending while it is held.
    pub(crate) async fn visit(&self, call: &str, idempotency_key: &str) {
        self.inner.lock().unwrap().arguments.entry(call.into()).or_default().push(Value::Null);
        self.pass(call, idempotency_key).await;
    }

    async fn pass(&self, call: &str, idempotency_key: &str) {
        let (gate, hook) = {
            let mut inner = self.inner.lock().unwrap();
            let keys = inner.keys.entry(call.into()).or_default();
            *keys.entry(idempotency_key.into()).or_default() += 1;
            (inner.gates.get(call).cloned(), inner.on_start.clone())
        };
        self.log.send_modify(|log| log.push(format!("+{call}")));
        if let Some(hook) = hook {
            hook(call);
        }
        if let Some(gate) = gate {
            gate.pass().await;
        }
        self.log.send_modify(|log| log.push(format!("-{call}")));
    }

    async fn play(&self, arguments: Work, idempotency_key: &str) -> Result<ToolOutput, ToolFailure> {
        let call = arguments.call.clone();
        let given = serde_json::to_value(&arguments).unwrap();
        let answer = {
            let mut inner = self.inner.lock().unwrap();
            inner.arguments.entry(call.clone()).or_default().push(given);
            inner.answers.get(&call).cloned()
        };
        self.pass(&call, idempotency_key).await;
        match answer {
            None => Ok(arguments.value.to_string().into()),
            Some(Answer::Text(text)) => Ok(text.into()),
            Some(Answer::At(text, destination)) => Ok(ToolOutput::from(text).at(destination)),
            Some(Answer::Failure(message)) => Err(ToolFailure::Reported(message)),
            Some(Answer::Panic) => panic!("as the test says"),
        }
    }
}

/// Arguments of all three tools. Unknown fields are refused, so a call's own properties never reach a tool.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Work {
    /// Name of the call in the test.
    call: String,
    #[serde(default)]
    value: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    n: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deep: Option<Deep>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Deep {
    items: Vec<Item>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Item {
    n: i64,
}

struct StageTool {
    name: &'static str,
    effect: ToolEffect,
    stage: Stage,
}

#[async_trait]
impl Tool for StageTool {
    type Args = Work;

    fn name(&self) -> &str {
        self.name
    }

    fn description(&self) -> &str {
        "Does as the test says."
    }

    fn effect(&self) -> ToolEffect {
        self.effect
    }

    async fn call(&self, arguments: Work, context: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
        self.stage.play(arguments, &context.idempotency_key).await
    }
}

/// An agent with all three tools and references, whose replies stream.
pub(crate) fn referring() -> AgentSpec {
    AgentSpec {
        model: ModelSpec { stream: true, ..ModelSpec::default() },
        tools: [WORK, PUT, ACT].map(|name| ToolRef::Name(name.into())).to_vec(),
        references: true,
        ..agent("a")
    }
}

/// A call of [`WORK`] that has `name` as its id and as its argument `call`.
pub(crate) fn work(name: &str, arguments: Value) -> Ev {
    call_of(WORK, name, arguments)
}

/// A call of `tool` that has `name` as its id and as its argument `call`.
pub(crate) fn call_of(tool: &str, name: &str, mut arguments: Value) -> Ev {
    arguments["call"] = json!(name);
    ev_call(name, tool, &arguments)
}

/// Calls that may have changed something, with the known state of each.
pub(crate) async fn ledger(fleet: &Fleet, id: ExecutionId) -> Vec<(String, EffectState)> {
    let steps = fleet.store.list_steps(id, -1, 1_000, Bodies::Read).await.unwrap();
    let entries = steps.into_iter().filter_map(|step| LedgerEntry::of(step).unwrap());
    entries.map(|entry| (entry.tool, entry.state)).collect()
}

/// A running execution.
pub(crate) struct Run {
    pub(crate) fleet: Fleet,
    pub(crate) id: ExecutionId,
    stage: Stage,
    worker: FleetWorker,
}

impl Run {
    /// Starts an execution of `agent`, whose model answers `replies` and then `done`.
    pub(crate) async fn start(
        agent: &AgentSpec,
        stage: &Stage,
        input: Value,
        replies: impl IntoIterator<Item = Reply>,
    ) -> Self {
        Self::start_as(&any_answer(), agent, stage, input, replies.into_iter().chain([reply_text("done")])).await
    }

    /// Starts an execution of `definition`, whose model answers `replies` and nothing else.
    pub(crate) async fn start_as(
        definition: &DefinitionSpec,
        agent: &AgentSpec,
        stage: &Stage,
        input: Value,
        replies: impl IntoIterator<Item = Reply>,
    ) -> Self {
        Self::start_on(Fleet::start().await, definition, agent, stage, input, replies).await
    }

    /// Starts an execution on this fleet.
    pub(crate) async fn start_on(
        fleet: Fleet,
        definition: &DefinitionSpec,
        agent: &AgentSpec,
        stage: &Stage,
        input: Value,
        replies: impl IntoIterator<Item = Reply>,
    ) -> Self {
        fleet.apply(agent, definition).await;
        replies.into_iter().for_each(|reply| fleet.llm.push(reply));
        let id = fleet.submit(&definition.key, input).await;
        let worker = fleet.worker_with(|worker| stage.tools(worker));
        Self { fleet, id, stage: stage.clone(), worker }
    }

    /// Kills the worker and starts another.
    pub(crate) async fn replace_worker(&mut self) {
        let next = self.fleet.worker_with(|worker| self.stage.tools(worker));
        std::mem::replace(&mut self.worker, next).kill().await;
    }

    /// Waits for the end, which must be FINISHED. Returns the row.
    pub(crate) async fn finished(&self) -> Value {
        let row = self.fleet.ended(self.id).await;
        assert_eq!(row["status"], "FINISHED", "{row}");
        row
    }

    /// Results of calls in the request with this number, from 0, by call id.
    pub(crate) fn told(&self, request: usize) -> CallResults {
        let requests = self.fleet.llm.requests();
        CallResults(results(&requests[request]))
    }

    /// Number of calls of a tool with a recorded result.
    pub(crate) async fn recorded(&self, tool: &str) -> i64 {
        sqlx::query_scalar("select count(*) from steps where execution_id = $1 and name = $2 and state = 'live'")
            .bind(self.id.0)
            .bind(tool)
            .fetch_one(&self.fleet.db.pool)
            .await
            .unwrap()
    }

    /// Number of calls with a recorded result.
    pub(crate) async fn recorded_calls(&self) -> i64 {
        sqlx::query_scalar("select count(*) from steps where execution_id = $1 and kind = 'call' and state = 'live'")
            .bind(self.id.0)
            .fetch_one(&self.fleet.db.pool)
            .await
            .unwrap()
    }

    /// Data of every event of this kind, in order.
    pub(crate) async fn events(&self, kind: &str) -> Vec<Value> {
        sqlx::query_scalar("select data from events where execution_id = $1 and kind = $2 order by seq")
            .bind(self.id.0)
            .bind(kind)
            .fetch_all(&self.fleet.db.pool)
            .await
            .unwrap()
    }
}

/// Results of calls in one request.
pub(crate) struct CallResults(BTreeMap<String, String>);

impl CallResults {
    /// Text of a call's result.
    pub(crate) fn text(&self, id: &str) -> &str {
        self.0.get(id).unwrap_or_else(|| panic!("no result of `{id}` in {:?}", self.0.keys()))
    }

    /// Result of a call as a value.
    pub(crate) fn value(&self, id: &str) -> Value {
        serde_json::from_str(self.text(id)).unwrap_or_else(|_| json!(self.text(id)))
    }

    /// Type of a call's error; `None` if it has a result or was skipped.
    pub(crate) fn error(&self, id: &str) -> Option<String> {
        self.value(id)["error"]["type"].as_str().map(str::to_owned)
    }

    /// Message of a call's error.
    pub(crate) fn message(&self, id: &str) -> String {
        self.value(id)["error"]["message"].as_str().unwrap_or_default().to_owned()
    }
}

/// Id and result of every call in a request, in the order of the request.
pub(crate) fn results_in_order(request: &Captured) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of_message = |message: &Value| -> Vec<(String, String)> {
        if message["role"] == "tool" {
            return vec![(text(&message["tool_call_id"]), text(&message["content"]))];
        }
        let parts = message["content"].as_array().map_or(&[][..], Vec::as_slice);
        let results = parts.iter().filter(|part| part["type"] == "tool_result");
        results.map(|part| (text(&part["tool_use_id"]), text(&part["content"]))).collect()
    };
    request.messages().iter().flat_map(of_message).collect()
}

fn results(request: &Captured) -> BTreeMap<String, String> {
    results_in_order(request).into_iter().collect()
}

/// A definition whose answer is an object, submitted as a call.
pub(crate) fn with_output_schema() -> DefinitionSpec {
    DefinitionSpec { output_schema: Some(json!({"type": "object"})), ..DefinitionSpec::new("d", "a") }
}

/// A definition that takes any text for an answer.
pub(crate) fn any_answer() -> DefinitionSpec {
    DefinitionSpec { validators: Vec::new(), ..DefinitionSpec::new("d", "a") }
}

/// Wire format of a model endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    /// Chat completions: a call is complete when the next one begins, or the finish reason comes.
    OpenAi,
    /// Anthropic's messages: a call is complete when its block stops.
    Anthropic,
}

impl Wire {
    pub(crate) const ALL: [Self; 2] = [Self::OpenAi, Self::Anthropic];

    /// A fleet whose workers use this format.
    pub(crate) async fn fleet(self) -> Fleet {
        let mut fleet = Fleet::start().await;
        if self == Self::Anthropic {
            let url = fleet.llm.url();
            for (field, value) in [("KIND", "anthropic"), ("BASE_URL", url.as_str()), ("DEFAULT_MODEL", "claude")] {
                fleet.set(&format!("LONGHAUL__LLM__PROVIDERS__CLAUDE__{field}"), value);
            }
            fleet.set("LONGHAUL__LLM__DEFAULT_PROVIDER", "claude");
        }
        fleet
    }
}
