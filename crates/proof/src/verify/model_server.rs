//! The model server: chat completions over HTTP that follow a fixed plan, streamed for every other execution. Records
//! every request with its idempotency key, its process, and the time its answer was complete.

use std::{sync::Arc, time::Duration};

use longhaul_shared::clock::{Clock, SystemClock};
use longhaul_testkit::{
    http_server::StartError,
    model::{self, Captured, Ev, Reply, Switch, ev_call, ev_text, reply_events, reply_status},
};
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;

use super::{
    audit::numbered,
    fleet::{DEFINITION, MARK, PROCESS_HEADER, SPAWN_SUB_AGENT, TOOL_SERVER},
    mix::{CHILDREN_FROM, Kind, Mix, RUNS_FROM, UPDATES_FROM},
    seen::{CountedTool, SeenRequest},
};

/// Shortest and longest delay of an answer, in milliseconds.
const THINKS_MS: (u64, u64) = (60, 240);
/// Pause between the pieces of a streamed answer, so that calls can start while it streams.
const BETWEEN_PIECES: Duration = Duration::from_millis(15);

/// Text of a prompt that is answered late.
pub(super) const SLOW_MARK: &str = "take your time";
/// Delay of that answer: many times that of the others.
const SLOW: Duration = Duration::from_secs(5);
/// Begin of the instructions of a memory update.
const MEMORY_PROMPT: &str = "You keep the memory";
/// Text before the number of an execution in the exchange that memory takes: its input.
const REMEMBERED_INPUT: &str = r#"{"number":"#;
/// The running server, stopped when dropped.
pub(super) struct ModelServer {
    server: model::ModelServer,
    log: Log,
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<SeenRequest>>>);

impl Log {
    fn lock(&self) -> MutexGuard<'_, Vec<SeenRequest>> {
        self.0.lock()
    }

    /// Records that the whole answer was handed to the connection.
    fn answered(&self, number: usize) {
        let now = SystemClock::new().now();
        if let Some(asked) = self.lock().get_mut(number) {
            asked.answered_at = Some(now);
        }
    }

    /// Records a request; returns the number of its answer, and of its execution.
    fn asked(&self, mix: &Mix, question: Question) -> (usize, i64) {
        let at = SystemClock::new().now();
        let mut asked = self.lock();
        let execution = match question.execution {
            schedule if mix.kind(schedule) == Kind::Schedule => run_of(&asked, schedule, &question),
            execution => execution,
        };
        let number = asked.len();
        let Question { process, key, turn, before, execution: _, first_answer: _ } = question;
        asked.push(SeenRequest { number, key, process, execution, turn, before, at, answered_at: None });
        (number, execution)
    }
}

/// Number of the run of a schedule that asks. The first requests of two runs differ in their keys only; a later
/// request repeats the first answer of its run.
fn run_of(asked: &[SeenRequest], schedule: i64, question: &Question) -> i64 {
    if let Some(first) = question.first_answer {
        return asked.get(first).map_or(schedule, |first| first.execution);
    }
    let runs = asked.iter().filter(|one| one.execution >= RUNS_FROM && one.execution % RUNS_FROM == schedule);
    let same = runs.clone().find(|run| run.key == question.key).map(|run| run.execution);
    same.unwrap_or_else(|| runs.map(|run| run.execution).max().unwrap_or(schedule) + RUNS_FROM)
}

impl ModelServer {
    pub(super) async fn start(mix: Mix) -> Result<Self, StartError> {
        let log = Log::default();
        let server = model::ModelServer::builder().lax().start().await?;
        let own = log.clone();
        server.answer_with(move |request| answer(&own, &mix, request));
        Ok(Self { server, log })
    }

    /// Base URL, the same for all processes: they share one breaker.
    pub(super) fn url(&self) -> String {
        format!("{}/v1", self.server.url())
    }

    pub(super) fn switch(&self) -> Switch {
        self.server.switch()
    }

    /// All requests so far.
    pub(super) fn asked(&self) -> Vec<SeenRequest> {
        self.log.lock().clone()
    }
}

/// The calls of a turn, numbered within their execution; no calls end the execution. Covers every kind of tool, alone
/// and with others.
fn plan(execution: i64, turn: usize) -> Vec<(i64, CountedTool)> {
    let turns = 3 + usize::try_from(execution % 3).unwrap_or_default();
    let first = i64::try_from(turn).unwrap_or_default() * 2;
    match turn {
        last if last + 1 >= turns => Vec::new(),
        0 => vec![(first, CountedTool::Look), (first + 1, CountedTool::Charge)],
        1 if execution % 7 == 0 => vec![(first, CountedTool::Put), (first + 1, CountedTool::ChargeUnanswered)],
        1 => vec![(first, CountedTool::Put)],
        _ => vec![(first, CountedTool::Charge)],
    }
}

/// The calls of a turn, as the model proposes them.
fn proposed_calls(mix: &Mix, execution: i64, turn: usize) -> Vec<Ev> {
    if mix.kind(execution) == Kind::Tree {
        return if turn == 0 { vec![spawn_call(execution)] } else { Vec::new() };
    }
    plan(execution, turn).into_iter().map(|call| counted_call(execution, call)).collect()
}

fn spawn_call(execution: i64) -> Ev {
    let task =
        |child: i64| json!({ "agent": DEFINITION, "prompt": format!("{MARK}{}", execution + child * CHILDREN_FROM) });
    ev_call("call_0", SPAWN_SUB_AGENT, &json!({ "tasks": [task(1), task(2)] }))
}

fn counted_call(execution: i64, (call, tool): (i64, CountedTool)) -> Ev {
    let name = format!("mcp__{TOOL_SERVER}__{}", tool.name());
    ev_call(&format!("call_{call}"), &name, &json!({ "execution": execution, "call": call }))
}

/// The parts of a request that the plan needs.
struct Question {
    process: String,
    key: String,
    execution: i64,
    /// Index of the turn within the execution.
    turn: usize,
    /// Numbers of the earlier messages of its session.
    before: Vec<i64>,
    /// Number of the first answer that the request repeats.
    first_answer: Option<usize>,
}

impl Question {
    fn read(request: &Captured) -> Option<Self> {
        let header = |name| request.header(name).map(str::to_owned);
        let (process, key) = (header(PROCESS_HEADER)?, header("idempotency-key")?);
        if let Some(source) = remembered_number(request) {
            let turn = request.replies();
            let (before, first_answer) = (Vec::new(), None);
            return Some(Self { process, key, execution: source + UPDATES_FROM, turn, before, first_answer });
        }
        let (mut before, mut turn, mut first_answer) = (Vec::new(), 0, None);
        for message in request.messages() {
            match message["role"].as_str() {
                Some("user") => {
                    // Messages in a row are sent as one.
                    for number in marked_numbers(&message.to_string()) {
                        before.push(number);
                        turn = 0;
                    }
                }
                Some("assistant") => {
                    turn += 1;
                    first_answer = first_answer.or_else(|| numbered(&message.to_string()));
                }
                _ => {}
            }
        }
        Some(Self { process, key, execution: before.pop()?, turn, before, first_answer })
    }
}

/// Number of the execution that a memory update is asked about.
fn remembered_number(request: &Captured) -> Option<i64> {
    let [system, user, ..] = request.messages() else { return None };
    system["content"].as_str().filter(|text| text.starts_with(MEMORY_PROMPT))?;
    number_after(user["content"].as_str()?, REMEMBERED_INPUT)
}

/// The number after the first mark in a text.
pub(super) fn marked_number(text: &str) -> Option<i64> {
    number_after(text, MARK)
}

/// The numbers after all marks in a text.
fn marked_numbers(text: &str) -> impl Iterator<Item = i64> {
    text.match_indices(MARK).filter_map(|(at, _)| marked_number(&text[at..]))
}

fn number_after(text: &str, mark: &str) -> Option<i64> {
    let rest = &text[text.find(mark)? + mark.len()..];
    rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())].parse().ok()
}

fn answer(log: &Log, mix: &Mix, request: &Captured) -> Reply {
    if request.messages().iter().any(|message| message.to_string().contains(SLOW_MARK)) {
        return reply_events([ev_text("done")]).usage(10, 1).delay(SLOW);
    }
    let Some(question) = Question::read(request) else {
        return reply_status(400, "not a question of this fleet");
    };
    let turn = question.turn;
    let (number, execution) = log.asked(mix, question);
    let is_update = (UPDATES_FROM..RUNS_FROM).contains(&execution);
    let (least, most) = THINKS_MS;
    let spread = (execution.unsigned_abs() * 31 + turn as u64 * 17) % (most - least);
    let calls = if is_update { Vec::new() } else { proposed_calls(mix, execution, turn) };
    let text = if is_update {
        let entity = json!({ "name": format!("#{number}#"), "kind": "answer" });
        json!({ "entities": [entity], "relations": [] }).to_string()
    } else if calls.is_empty() {
        format!(r##"{{"done": "#{number}#"}}"##)
    } else {
        format!("answer #{number}#")
    };
    let log = log.clone();
    let reply = reply_events([ev_text(&text)].into_iter().chain(calls))
        .usage(100, 20)
        .delay(Duration::from_millis(least + spread))
        .on_answered(move || log.answered(number));
    if execution % 2 == 0 { reply.whole() } else { reply.trickle(BETWEEN_PIECES) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::mix::Part;

    #[test]
    fn every_plan_ends_with_unique_call_numbers() {
        for execution in 0..50 {
            let calls: Vec<(i64, CountedTool)> = (0..10).flat_map(|turn| plan(execution, turn)).collect();
            let mut numbers: Vec<i64> = calls.iter().map(|(number, _)| *number).collect();
            numbers.dedup();
            assert_eq!(numbers.len(), calls.len());
            assert!(plan(execution, 5).is_empty());
        }
    }

    #[test]
    fn runs_of_a_schedule_are_numbered_by_their_keys() {
        let (log, mix) = (Log::default(), Mix::of(&[Part::Schedules]));
        let ask = |key: &str, first_answer| {
            let (process, key) = ("worker-1.1".into(), key.into());
            log.asked(&mix, Question { process, key, execution: 2, turn: 0, before: Vec::new(), first_answer })
        };
        assert_eq!(ask("a", None), (0, 2 + RUNS_FROM));
        assert_eq!(ask("b", None), (1, 2 + 2 * RUNS_FROM));
        assert_eq!(ask("a", None), (2, 2 + RUNS_FROM), "its worker was killed before the answer was recorded");
        assert_eq!(ask("c", Some(1)), (3, 2 + 2 * RUNS_FROM), "a later turn");
    }

    #[test]
    fn execution_number_is_read_from_its_prompt() {
        assert_eq!(marked_number("\"content\":\"verify execution 17\""), Some(17));
        assert_eq!(marked_number("verify execution x"), None);
        assert_eq!(marked_number("nothing"), None);
        let joined: Vec<i64> = marked_numbers("verify execution 35\\n\\nverify execution 45").collect();
        assert_eq!(joined, [35, 45]);
    }
}
