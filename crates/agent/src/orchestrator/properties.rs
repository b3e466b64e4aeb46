//! Property test of the schedule: any calls, in any order of streaming and completion.

use std::{collections::BTreeSet, sync::Arc};

use longhaul_domain::ToolCall;
use longhaul_guards::json_schema::SchemaCache;
use longhaul_references::{CallWrite, Features, Path, PlannedCall, Signature, StateLimits, StateLog};
use longhaul_sdk::{
    ToolEffect, ToolSpec,
    spec::{AgentLimits, Launch},
};
use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Value, json};

use super::{
    schedule::{Command, Event, Schedule},
    scheduled_call::{Fate, Streamed, Unrun},
};

/// One call of a reply, and its outcome.
#[derive(Debug, Clone)]
struct Scripted {
    arguments: Value,
    is_eager: bool,
    succeeds: bool,
}

fn place() -> impl Strategy<Value = &'static str> {
    select(vec!["†state.a", "†state.a.x", "†state.b", "†state.c", "†data.a"])
}

fn expression() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => place().prop_map(str::to_owned),
        1 => (place(), place(), select(vec!["||", "&&"])).prop_map(|(a, b, operator)| format!("{a} {operator} {b}")),
    ]
}

fn read() -> impl Strategy<Value = String> {
    prop_oneof![4 => expression(), 1 => place().prop_map(|place| format!("{place} || 5"))]
}

fn scripted() -> impl Strategy<Value = Scripted> {
    let condition = prop_oneof![4 => Just(None), 1 => place().prop_map(Some), 1 => Just(Some("!†state.b"))];
    let parts =
        (vec(read(), 0..3), prop::option::of(expression()), condition, any::<bool>(), prop::bool::weighted(0.8));
    parts.prop_map(|(reads, writes, condition, is_eager, succeeds)| {
        let arguments = json!({ "reads": reads, "_outputPath": writes, "_when": condition });
        Scripted { arguments, is_eager, succeeds }
    })
}

/// A reply in progress, driven by the choices of the test.
struct Playing {
    script: Vec<Scripted>,
    plans: Vec<PlannedCall>,
    schedule: Schedule,
    state: StateLog,
    running: BTreeSet<usize>,
    /// Outcome of each call; `None` until it ends.
    fates: Vec<Option<Fate>>,
    streamed: usize,
}

impl Playing {
    fn new(script: Vec<Scripted>, max_running: usize) -> Self {
        let spec = ToolSpec {
            name: "t".into(),
            description: String::new(),
            parameters: json!({"type": "object"}),
            effect: ToolEffect::ReadOnly,
            latent_output: None,
            is_strict: false,
            mended: None,
        };
        let features = Features { references: true, destinations: true, conditions: true, ..Features::default() };
        let signature = Arc::new(Signature::new(&spec, features, &SchemaCache::default()).unwrap());
        let call = |arguments: &Value| ToolCall { id: "c".into(), name: "t".into(), arguments: arguments.to_string() };
        let plans = script.iter().map(|call_of| PlannedCall::read(&call(&call_of.arguments), &signature).unwrap());
        let plans: Vec<_> = plans.collect();
        Self {
            fates: vec![None; plans.len()],
            plans,
            schedule: Schedule::new(max_running),
            state: StateLog::new(json!({}), None, StateLimits::from(&AgentLimits::default())),
            running: BTreeSet::new(),
            streamed: 0,
            script,
        }
    }

    fn tell(&mut self, event: Event) {
        for command in self.schedule.on(event, &self.state) {
            match command {
                Command::Start { index, resolved } => {
                    assert!(self.fates[index].is_none() && self.running.insert(index), "{index} starts twice");
                    for path in resolved.sources.into_iter().filter_map(|source| source.path) {
                        self.assert_fresh(index, &path);
                    }
                }
                Command::Answer { index, unrun } => {
                    assert!(!self.running.contains(&index), "{index} runs and is answered");
                    let fate = match unrun {
                        Unrun::Error(_) => Fate::Failed,
                        Unrun::UntakenBranch | Unrun::UnmetCondition(_) | Unrun::Superseded => Fate::Skipped,
                    };
                    assert_eq!(self.fates[index].replace(fate), None, "{index} is answered twice");
                }
                Command::Hold { .. } => panic!("nothing reads an approval"),
            }
        }
    }

    /// Program order: every earlier writer of a read path has ended, and if one did not succeed, another wrote it.
    fn assert_fresh(&self, reader: usize, path: &Path) {
        let writers = (0..reader).filter(|&at| self.plans[at].may_write(path, None));
        let ended = |at: usize| self.fates[at].as_ref().unwrap_or_else(|| panic!("{reader} reads before {at} ended"));
        let fates: Vec<&Fate> = writers.map(ended).collect();
        let wrote = |fate: &&Fate| match fate {
            Fate::Succeeded { wrote } => wrote.iter().any(|wrote| wrote.is_above_or_below(path)),
            Fate::Failed | Fate::Skipped => false,
        };
        let all_succeeded = fates.iter().all(|fate| matches!(fate, Fate::Succeeded { .. }));
        assert!(all_succeeded || fates.iter().any(wrote), "{reader} reads what was to be replaced at {path}");
    }

    fn stream_next(&mut self) {
        let (at, script) = (self.streamed, &self.script[self.streamed]);
        let plan = self.plans[at].clone();
        self.streamed += 1;
        let streamed = Streamed {
            id: at.to_string(),
            tool: "t".into(),
            declares: plan.writes().into_iter().cloned().collect(),
            instance: None,
            planned: Some(plan),
            launch: if script.is_eager { Launch::Eager } else { Launch::OnClose },
            concurrency: None,
            is_output: false,
            fate: None,
        };
        self.tell(Event::CallStreamed(Box::new(streamed)));
    }

    fn finish(&mut self, choice: usize) {
        let Some(&index) = self.running.iter().nth(choice % self.running.len().max(1)) else { return };
        self.running.remove(&index);
        let fate =
            if self.script[index].succeeds { Fate::Succeeded { wrote: self.write(index) } } else { Fate::Failed };
        assert_eq!(self.fates[index].replace(fate.clone()), None, "{index} ends twice");
        self.tell(Event::CallFinished { index, fate });
    }

    fn write(&mut self, index: usize) -> Vec<Path> {
        let Some(destination) = self.plans[index].destination() else { return Vec::new() };
        let (paths, method) = (destination.choose(None).unwrap(), self.plans[index].method());
        let (call_id, value) = (index.to_string(), json!({ "x": index }));
        let write = CallWrite { tick: 1, call_id, instance: None, paths: paths.clone(), method, value };
        self.state.write(write).unwrap();
        paths
    }
}

proptest! {
    #[test]
    fn every_call_ends_once_and_reads_nothing_stale(
        script in vec(scripted(), 0..7),
        choices in vec(0..8_usize, 0..24),
        max_running in 1..4_usize,
    ) {
        let mut playing = Playing::new(script, max_running);
        for choice in choices {
            if choice < 4 && playing.streamed < playing.script.len() {
                playing.stream_next();
            } else {
                playing.finish(choice);
            }
            prop_assert!(playing.running.len() <= max_running);
        }
        while playing.streamed < playing.script.len() {
            playing.stream_next();
        }
        playing.tell(Event::StreamClosed);
        while !playing.running.is_empty() {
            prop_assert!(!playing.schedule.is_quiescent());
            playing.finish(0);
        }
        prop_assert!(playing.schedule.is_quiescent());
        prop_assert!(playing.fates.iter().all(Option::is_some), "{:?}", playing.fates);
    }
}
