//! The attacks: their preparation and their repeated requests.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::{
    super::environment::{Caller, DEFINITION},
    attacker::Move,
    hostile,
    uses::Use,
};

const EXECUTIONS: &str = "/v1/executions";
const BATCH: &str = "/v1/executions/batch";
/// Items of a batch.
pub(super) const ITEMS: usize = 500;
/// Limits for which each execution of [`Attack::Limits`] has its own values.
const RULES: usize = 60;
/// Maximum wait for an execution that an attack needs.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Attack {
    /// Ordinary executions at the maximum rate: a load, for comparison
    Plain,
    /// Schemas that take exponential time or space, in definitions and from a model
    Schemas,
    /// Prompt templates, forks and scripted programs of unbounded memory and time
    Templates,
    /// Limits of 10,000 slots, with executions that use new values of all of them or are never admitted
    Limits,
    /// Batches of 500 hostile items, and of 16 MiB
    Batches,
    /// A model that recovers while thousands of executions wait for it
    Outage,
    /// Executions of 300 s on all permits of one worker of 100, with 900 more behind: single executions of the other
    Permits,
    /// Uploads that send 18 MiB at once and the rest near the least rate, over all memory: uploads of the other
    Files,
    /// Lists, as fast as 64 connections ask for them: lists of the other
    Lists,
    /// All event streams of the API process, open: streams of the other
    Streams,
}

impl Attack {
    /// Name of the measured use in the output.
    pub(super) fn measured_name(self) -> &'static str {
        self.measured().map_or("start", Use::name)
    }

    /// Name in the output.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Schemas => "schemas",
            Self::Templates => "templates",
            Self::Limits => "limits",
            Self::Batches => "batches",
            Self::Outage => "outage",
            Self::Permits => "permits",
            Self::Files => "files",
            Self::Lists => "lists",
            Self::Streams => "streams",
        }
    }

    /// True if the attack is to hold a resource: it is taken before the measurement, in an environment of its own.
    pub(super) fn holds(self) -> bool {
        match self {
            Self::Permits | Self::Files | Self::Lists | Self::Streams => true,
            Self::Plain | Self::Schemas | Self::Templates | Self::Limits | Self::Batches | Self::Outage => false,
        }
    }

    /// The use of the held resource that is measured; `None`: starts of executions.
    pub(super) fn measured(self) -> Option<Use> {
        match self {
            Self::Files => Some(Use::Upload),
            Self::Lists => Some(Use::List),
            Self::Streams => Some(Use::Stream),
            Self::Plain
            | Self::Schemas
            | Self::Templates
            | Self::Limits
            | Self::Batches
            | Self::Outage
            | Self::Permits => None,
        }
    }

    /// Ordinary requests that create as many executions as the attack's requests.
    pub(super) fn plain(self) -> Vec<Move> {
        match self {
            // One hostile item in ten can be stored.
            Self::Batches => vec![plain_batch(DEFINITION, ITEMS / 10)],
            Self::Outage => vec![plain_batch(DEFINITION, ITEMS)],
            Self::Plain
            | Self::Schemas
            | Self::Templates
            | Self::Limits
            | Self::Permits
            | Self::Files
            | Self::Lists
            | Self::Streams => {
                vec![Move::new_each(EXECUTIONS, |n| json!({ "definition": DEFINITION, "input": { "item": n } }))]
            }
        }
    }

    /// Creates the attack's definitions and agents, and returns its requests. Refusals during preparation are
    /// counted in `answers`.
    pub(super) async fn prepare(
        self,
        caller: &Caller,
        answers: &mut BTreeMap<String, u64>,
    ) -> anyhow::Result<Vec<Move>> {
        match self {
            Self::Plain => Ok(self.plain()),
            Self::Schemas => Ok(schemas(caller, answers).await),
            Self::Templates => templates(caller, answers).await,
            Self::Limits => Ok(limits(caller, answers).await),
            Self::Batches => Ok(batches(caller, answers).await),
            Self::Outage | Self::Permits | Self::Files | Self::Lists | Self::Streams => Ok(Vec::new()),
        }
    }

    /// Removes limits that would affect later measurements.
    pub(super) async fn clean_up(self, caller: &Caller) {
        if self == Self::Limits {
            let mut answers = BTreeMap::new();
            for rule in rules() {
                Move::delete(format!("/v1/limits/{rule}")).send(caller, &mut answers).await;
            }
        }
    }
}

/// A batch of ordinary executions of a definition.
pub(super) fn plain_batch(definition: &'static str, items: usize) -> Move {
    Move::new_each(BATCH, move |n| {
        let item = |of| json!({ "definition": definition, "input": { "item": n, "of": of } });
        json!({ "executions": (0..items).map(item).collect::<Vec<_>>() })
    })
}

/// Interleaves both lists, so that neither kind waits for all of the other.
fn alternating(first: Vec<Move>, second: Vec<Move>) -> Vec<Move> {
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut moves = Vec::new();
    loop {
        let pair = [first.next(), second.next()];
        if pair.iter().all(Option::is_none) {
            return moves;
        }
        moves.extend(pair.into_iter().flatten());
    }
}

fn definition(key: &str, fields: Value) -> Move {
    let mut body = json!({ "key": key, "agent_key": DEFINITION, "name": key });
    merge(&mut body, fields);
    Move::put(format!("/v1/definitions/{key}"), &body)
}

fn agent(key: &str, fields: Value) -> Move {
    let mut body = json!({ "key": key, "name": key, "prompts": { "conversation": "Answer." } });
    merge(&mut body, fields);
    Move::put(format!("/v1/agents/{key}"), &body)
}

fn merge(body: &mut Value, fields: Value) {
    if let (Value::Object(body), Value::Object(fields)) = (body, fields) {
        Map::extend(body, fields);
    }
}

fn run(target: &str, key: &str, input: &Value) -> Move {
    Move::post(EXECUTIONS, json!({ target: key, "input": input }).to_string())
}

async fn schemas(caller: &Caller, answers: &mut BTreeMap<String, u64>) -> Vec<Move> {
    let mut puts = Vec::new();
    for (n, schema) in hostile::unbounded_schemas().into_iter().enumerate() {
        let (key, tool) = (format!("unbounded-{n}"), json!({ "type": "object", "properties": { "a": schema } }));
        puts.push(definition(&key, json!({ "input_schema": schema })));
        let latent = json!([{ "name": "think", "description": "Thinks.", "parameters": tool }]);
        puts.push(agent(&key, json!({ "latent_tools": latent })));
    }
    let mut submits = Vec::new();
    for (n, (schema, input)) in hostile::costly_schemas().into_iter().enumerate() {
        let key = format!("costly-{n}");
        let put = definition(&key, json!({ "input_schema": schema }));
        put.send(caller, answers).await;
        submits.extend([put, run("definition", &key, &input)]);
    }
    let latent = json!([{ "name": "think", "description": "Thinks.",
        "parameters": { "type": "object", "properties": { "text": hostile::slow_pattern() } } }]);
    for (n, schema) in hostile::unbounded_schemas().into_iter().take(4).enumerate() {
        let key = format!("asks-{n}");
        let model = json!({ "provider": "scripted", "script": hostile::schema_script(&schema) });
        let asks = json!({ "model": model, "tools": ["ask_caller"], "latent_tools": latent });
        agent(&key, asks).send(caller, answers).await;
        let answer = json!({ "agent_key": key, "output_schema": hostile::slow_pattern() });
        definition(&key, answer).send(caller, answers).await;
        submits.push(run("definition", &key, &json!({ "n": n })));
    }
    alternating(puts, submits)
}

async fn templates(caller: &Caller, answers: &mut BTreeMap<String, u64>) -> anyhow::Result<Vec<Move>> {
    let origin = finished_execution(caller).await?;
    let input = json!({ "prompt": hostile::long_prompt() });
    let (mut runs, mut forks) = (Vec::new(), Vec::new());
    for (n, template) in hostile::TEMPLATES.into_iter().enumerate() {
        let (prompt, script) = (format!("prompt-{n}"), format!("script-{n}"));
        let put = agent(&prompt, json!({ "prompts": { "conversation": template } }));
        put.send(caller, answers).await;
        let program = template.replace("input.prompt", "input_text").replace("input|", "messages|");
        let model = json!({ "provider": "scripted", "script": program });
        agent(&script, json!({ "model": model })).send(caller, answers).await;
        runs.extend([run("agent", &prompt, &input), run("agent", &script, &input), put]);
        let body = json!({ "from_step": 1, "prompt": template, "input": input });
        forks.push(Move::post(&format!("{EXECUTIONS}/{origin}/fork"), body.to_string()));
    }
    Ok(alternating(runs, forks))
}

/// Runs an execution of the caller's own agent to its end and returns its id.
async fn finished_execution(caller: &Caller) -> anyhow::Result<String> {
    agent("origin", json!({})).send(caller, &mut BTreeMap::new()).await;
    let submitted = caller.post(EXECUTIONS, &json!({ "agent": "origin", "input": { "prompt": "Answer." } })).await?;
    let id = submitted["id"].as_str().context("the API answered no id")?.to_owned();
    let give_up = Instant::now() + PATIENCE;
    loop {
        let (_, body) = caller.send(Method::GET, &format!("{EXECUTIONS}/{id}"), Bytes::new()).await?;
        let shown: Value = serde_json::from_slice(&body)?;
        match shown["status"].as_str() {
            Some("FINISHED") => return Ok(id),
            Some("FAILED") => anyhow::bail!("the execution to be forked FAILED: {shown}"),
            _ => ensure!(Instant::now() < give_up, "the execution to be forked does not end: {shown}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The limits of [`Attack::Limits`].
fn rules() -> impl Iterator<Item = String> {
    (0..RULES).map(|n| format!("metadata.q{n}")).chain(["metadata.never".into(), "metadata.single".into()])
}

async fn limits(caller: &Caller, answers: &mut BTreeMap<String, u64>) -> Vec<Move> {
    let limit = |rule: &str, limit: u32| Move::put(format!("/v1/limits/{rule}"), &json!({ "limit": limit }));
    for rule in rules() {
        let most = match rule.as_str() {
            "metadata.never" => 0,
            "metadata.single" => 1,
            _ => 10_000,
        };
        limit(&rule, most).send(caller, answers).await;
    }
    let concurrency: Vec<_> = (0..16).map(|n| json!({ "key": format!("metadata.own{n}"), "limit": 10_000 })).collect();
    definition("limited", json!({ "concurrency": concurrency })).send(caller, answers).await;
    let submit = |metadata: fn(u64) -> Map<String, Value>| {
        Move::new_each(
            EXECUTIONS,
            move |n| json!({ "definition": "limited", "input": { "item": n }, "metadata": metadata(n) }),
        )
    };
    vec![
        submit(|n| (0..RULES).map(|rule| (format!("q{rule}"), json!(n))).collect()),
        submit(|_| Map::from_iter([("never".to_owned(), json!(1))])),
        submit(|n| (0..48).map(|rule| (format!("q{rule}"), json!(n))).chain(own_values(n)).collect()),
        submit(|_| Map::from_iter([("single".to_owned(), json!(1))])),
        submit(|n| Map::from_iter([("never".to_owned(), json!(n)), ("q0".to_owned(), json!(n))])),
        limit("metadata.q0", 9_999),
        submit(|n| (0..RULES).map(|rule| (format!("q{rule}"), json!(n))).collect()),
        limit("metadata.q0", 10_000),
    ]
}

fn own_values(n: u64) -> impl Iterator<Item = (String, Value)> {
    (0..16).map(move |rule| (format!("own{rule}"), json!(n)))
}

async fn batches(caller: &Caller, answers: &mut BTreeMap<String, u64>) -> Vec<Move> {
    let mut unserved = Vec::new();
    for bytes in (2_600..2_760).step_by(20) {
        let key = format!("tools-{bytes}");
        agent(&key, json!({ "tools": hostile::tool_names(bytes) })).send(caller, answers).await;
        unserved.push(json!({ "agent": key, "input": { "prompt": "x" } }).to_string());
    }
    let mut mixed = hostile::items(DEFINITION, ITEMS - unserved.len());
    mixed.extend(unserved);
    let unknown = vec![r#"{"definition": "no-such-definition", "input": {}}"#.to_owned(); ITEMS];
    let oversized = format!(r#"{{"definition": "{DEFINITION}", "input": "{}"}}"#, "x".repeat(hostile::ITEM_BYTES));
    let beyond = hostile::batch(&vec![oversized; 17]);
    let large = Bytes::from(hostile::batch(&hostile::large_items(DEFINITION, ITEMS)));
    // Valid JSON except for its missing last byte.
    let broken = large.slice(..large.len() - 1);
    let mixed = Bytes::from(hostile::batch(&mixed));
    let long_names = agent("long-names", json!({ "tools": ["n".repeat(100_000)] }));
    vec![
        Move::post(BATCH, mixed.clone()),
        Move::post(BATCH, large.clone()),
        Move::post(BATCH, mixed.clone()),
        Move::post(BATCH, hostile::batch(&unknown)),
        Move::post(BATCH, broken),
        Move::post(BATCH, mixed),
        Move::post(BATCH, beyond),
        long_names,
    ]
}
