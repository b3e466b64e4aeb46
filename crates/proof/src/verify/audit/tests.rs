//! Tests that the audit can fail: one honest set of evidence, and every falsification of it. The file is long because
//! each falsification changes the same evidence.

use longhaul_domain::WorkerId;
use longhaul_store::proof::audit::{
    AuditedBudget, AuditedMemory, AuditedTranscript, AuditedTurn, AuditedWorker, BrokenHistory, Leftovers,
};
use uuid::Uuid;

use super::*;
use crate::verify::{
    fault_kind::FaultKind,
    seen::{Effect, Process, Submit},
};

fn at(millis: i64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::milliseconds(millis)
}

fn id(number: u128) -> ExecutionId {
    ExecutionId(Uuid::from_u128(number))
}

fn asked(number: usize, key: &str, process: &str, from: i64, until: i64) -> SeenRequest {
    // Keys in these tests end with the number of their turn.
    let turn = key.trim_start_matches('k').parse().unwrap();
    let (key, process) = (key.into(), process.into());
    SeenRequest {
        number,
        key,
        process,
        execution: 0,
        turn,
        before: Vec::new(),
        at: at(from),
        answered_at: Some(at(until)),
    }
}

fn effect(number: usize, tool: CountedTool, call: i64, key: &str, process: &str, when: i64) -> Effect {
    Effect { number, tool, key: key.into(), process: process.into(), execution: 0, call, at: at(when) }
}

fn step(seq: i32, attempt: i32, kind: &str, key: &str, preview: &str, when: i64) -> AuditedStep {
    AuditedStep {
        name: None,
        execution: id(1),
        seq,
        attempt,
        kind: kind.into(),
        state: "live".into(),
        idempotency_key: key.into(),
        preview: Some(preview.into()),
        finished_at: Some(at(when)),
    }
}

fn attempt(number: i32, pid: i32, from: i64, until: i64, outcome: &str) -> AuditedAttempt {
    AuditedAttempt {
        execution: id(1),
        number,
        worker: worker(pid).id,
        started_at: at(from),
        ended_at: Some(at(until)),
        outcome: outcome.into(),
    }
}

/// The live worker of a process.
fn worker(pid: i32) -> AuditedWorker {
    AuditedWorker { id: WorkerId(Uuid::from_u128(u128::from(pid.unsigned_abs()))), pid, dead_at: None }
}

fn fault(kind: FaultKind, process: Option<&str>, from: i64, until: i64) -> Fault {
    Fault { kind, process: process.map(Into::into), from: at(from), until: at(until) }
}

/// One execution: `one` recorded a turn and a charge, and was killed just after the second turn was answered. `two`
/// asked for that turn again and finished.
fn honest() -> Evidence {
    Evidence {
        submits: vec![Submit { number: 0, answers: vec![id(1), id(1)], tries: 3, refused: None }],
        asked: vec![
            asked(0, "k0", "one", 100, 200),
            asked(1, "k1", "one", 300, 400),
            asked(2, "k1", "two", 7_000, 7_100),
        ],
        effects: vec![effect(0, CountedTool::Charge, 0, "c0", "one", 230)],
        faults: vec![fault(FaultKind::KillWorker, Some("one"), 410, 900)],
        processes: vec![Process { name: "one".into(), pid: 11 }, Process { name: "two".into(), pid: 22 }],
        workers: [11, 22].map(|pid| (worker(pid).id, worker(pid))).into(),
        executions: vec![AuditedExecution {
            id: id(1),
            number: 0,
            status: "FINISHED".into(),
            wait_reason: None,
            failure_code: None,
            created_at: at(0),
            started_at: Some(at(50)),
            finished_at: Some(at(7_200)),
            turn: None,
            schedule: None,
            is_root: true,
        }],
        attempts: vec![attempt(1, 11, 50, 6_500, "lost"), attempt(2, 22, 6_900, 7_200, "finished")],
        steps: vec![
            step(1, 1, "turn", "k0", "answer #0#", 210),
            step(2, 1, "call", "c0", "effect #0#", 280),
            step(3, 2, "turn", "k1", "{\"done\": \"#2#\"}", 7_110),
        ],
        ..Evidence::default()
    }
}

/// The number of findings per list after `doctor` has changed the honest evidence.
fn found(doctor: impl FnOnce(&mut Evidence)) -> Vec<(&'static str, usize)> {
    let mut evidence = honest();
    doctor(&mut evidence);
    let findings = judge(&evidence);
    let lists = [
        ("lost", findings.lost.len()),
        ("stuck", findings.stuck.len()),
        ("failed", findings.failed.len()),
        ("submits", findings.submits.len()),
        ("calls", findings.calls_repeated.len()),
        ("effects", findings.effects_repeated.len()),
        ("stale", findings.stale_writes.len()),
        ("budgets", findings.budgets.len()),
        ("histories", findings.histories.len()),
        ("transcripts", findings.transcripts.len()),
        ("memories", findings.memories.len()),
        ("leftovers", findings.leftovers.len()),
    ];
    lists.into_iter().filter(|(_, found)| *found > 0).collect()
}

#[test]
fn memory_must_take_an_execution_once() {
    for (updates, episodes) in [(1, 1), (0, 0), (1, 0), (2, 1), (1, 2)] {
        let memory = AuditedMemory { execution: id(1), updates, episodes };
        assert_eq!(found(|evidence| evidence.memories.push(memory)).is_empty(), (updates, episodes) == (1, 1));
    }
}

#[test]
fn honest_record_has_no_findings() {
    assert_eq!(found(|_| {}), []);
    let window = judge(&honest()).window;
    assert_eq!(window, Window { calls: 1, longest: 0.01, longest_before_a_kill: 0.01, ..Window::default() });
    // With Postgres unavailable as well, the kill need not be the cause.
    let mut evidence = honest();
    evidence.faults.push(fault(FaultKind::PostgresRestart, None, 410, 900));
    assert_eq!(judge(&evidence).window, Window { calls: 1, longest: 0.01, ..Window::default() });
}

#[test]
fn overshot_and_undercharged_budgets_are_found() {
    let budget = AuditedBudget {
        root: id(1),
        max_calls: Some(5),
        spent_calls: 2,
        max_tokens: Some(1_000),
        spent_tokens: 400,
        reserved_calls: 0,
        turns: 2,
    };
    assert_eq!(found(|e| e.budgets.push(budget)), []);
    for lie in [
        AuditedBudget { spent_calls: 6, ..budget },
        AuditedBudget { spent_tokens: 1_001, ..budget },
        AuditedBudget { turns: 3, ..budget },
        AuditedBudget { reserved_calls: 1, ..budget },
    ] {
        assert_eq!(found(|e| e.budgets.push(lie)), [("budgets", 1)], "{lie:?}");
    }
}

/// Two messages of one session: the honest execution, and one that repeats its message and begins after it.
fn conversation(e: &mut Evidence) {
    let session = SessionId(Uuid::from_u128(7));
    let turn = |number| Some(AuditedTurn { session, number, interrupts: false });
    let first = AuditedExecution { turn: turn(1), ..e.executions[0].clone() };
    let second = AuditedExecution { id: id(2), number: 5, turn: turn(2), ..first.clone() };
    e.executions = vec![first, second];
    e.asked.push(SeenRequest { execution: 5, before: vec![0], ..asked(3, "k7", "two", 7_250, 7_300) });
    e.attempts.push(AuditedAttempt { execution: id(2), ..attempt(1, 22, 7_210, 7_400, "finished") });
    e.steps.push(AuditedStep { execution: id(2), ..step(1, 1, "turn", "k7", "answer #3#", 7_310) });
    let said = |execution, text: &str| (id(execution), text.to_owned());
    let messages = vec![
        said(1, "verify execution 0"),
        said(1, "answer #0#"),
        said(1, "{\"done\": \"#2#\"}"),
        said(2, "verify execution 5"),
        said(2, "answer #3#"),
    ];
    e.transcripts = vec![AuditedTranscript { session, messages }];
}

#[test]
fn broken_conversations_are_found() {
    let with = |doctor: fn(&mut Evidence)| {
        found(move |e| {
            conversation(e);
            doctor(e);
        })
    };
    assert_eq!(with(|_| {}), []);
    assert_eq!(with(|e| e.asked[3].before.clear()), [("transcripts", 1)], "a request without the message before");
    assert_eq!(with(|e| e.asked[3].before = vec![0, 0]), [("transcripts", 1)], "a request that repeats it twice");
    assert_eq!(with(|e| e.asked[0].before = vec![5]), [("transcripts", 1)], "a request with a later message");
    assert_eq!(with(|e| e.transcripts[0].messages.swap(0, 3)), [("transcripts", 1)], "messages out of order");
    assert_eq!(with(|e| drop(e.transcripts[0].messages.remove(4))), [("transcripts", 1)], "an answer is missing");
    assert_eq!(with(|e| e.transcripts.clear()), [("transcripts", 3)]);
}

#[test]
fn only_an_interrupting_message_explains_a_cancelled_one() {
    let cancelled = |e: &mut Evidence| {
        conversation(e);
        e.executions[0].status = "FAILED".into();
        e.executions[0].failure_code = Some("cancelled".into());
    };
    assert_eq!(found(cancelled), [("failed", 1)]);
    let interrupts = |e: &mut Evidence, message: usize| {
        cancelled(e);
        e.executions[message].turn = e.executions[message].turn.map(|turn| AuditedTurn { interrupts: true, ..turn });
    };
    assert_eq!(found(|e| interrupts(e, 1)), []);
    assert_eq!(found(|e| interrupts(e, 0)), [("failed", 1)], "it is not interrupted by itself");
    let partial = |e: &mut Evidence| {
        interrupts(e, 1);
        e.steps[2].preview = Some("answ".into());
    };
    assert_eq!(found(partial), [], "an interrupt keeps the text so far");
    let without_number = |e: &mut Evidence, result: &str| {
        interrupts(e, 1);
        e.steps[1].preview = Some(result.into());
    };
    assert_eq!(found(|e| without_number(e, "the execution was cancelled")), []);
    assert_eq!(found(|e| without_number(e, "done")), [("stale", 1)], "a call that ended repeats its number");
}

#[test]
fn call_of_spawn_sub_agent_needs_no_number() {
    let spawned =
        AuditedStep { name: Some("spawn_sub_agent".into()), ..step(4, 2, "call", "c9", "two results", 7_150) };
    assert_eq!(found(|e| e.steps.push(spawned)), []);
}

#[test]
fn lost_stuck_and_failed_executions_are_found() {
    assert_eq!(
        found(|e| e.submits.push(Submit { number: 1, answers: vec![id(9)], ..Submit::default() })),
        [("lost", 1)]
    );
    assert_eq!(found(|e| e.executions[0].status = "IN_PROGRESS".into()), [("stuck", 1)]);
    assert_eq!(found(|e| e.executions[0].status = "FAILED".into()), [("failed", 1)]);
}

#[test]
fn submit_without_exactly_one_execution_is_found() {
    let second = |e: &mut Evidence| {
        let mut other = e.executions[0].clone();
        other.id = id(2);
        e.executions.push(other);
        e.submits[0].answers.push(id(2));
    };
    assert_eq!(found(second), [("submits", 2)]);
    assert_eq!(found(|e| e.submits.push(Submit { number: 1, ..Submit::default() })), [("submits", 1)]);
    assert_eq!(found(|e| e.submits[0].refused = Some("422".into())), [("submits", 1)]);
}

#[test]
fn repeated_request_of_a_recorded_turn_is_found() {
    assert_eq!(found(|e| e.asked.push(asked(3, "k0", "two", 6_950, 7_000))), [("calls", 1)]);
    // An unanswered request counts too.
    let unanswered =
        |e: &mut Evidence| e.asked.push(SeenRequest { answered_at: None, ..asked(3, "k0", "two", 6_950, 0) });
    assert_eq!(found(unanswered), [("calls", 1)]);
}

#[test]
fn turn_requested_under_another_key_is_found() {
    // Before the step was recorded, and after.
    for when in [(205, 206), (6_950, 7_000)] {
        let again = |e: &mut Evidence| e.asked.push(SeenRequest { turn: 0, ..asked(3, "k9", "two", when.0, when.1) });
        assert_eq!(found(again), [("calls", 1)]);
    }
}

#[test]
fn unrecorded_answer_without_a_fault_is_found() {
    assert_eq!(found(|e| e.faults.clear()), [("calls", 1)]);
    let another = found(|e| e.faults[0].process = Some("two".into()));
    assert_eq!(another, [("calls", 1), ("leftovers", 1)], "another process was killed, which held nothing");
    assert_eq!(found(|e| e.faults[0].from = at(2_500)), [("calls", 1)], "there was time to record it before");
    assert_eq!(found(|e| e.faults[0].kind = FaultKind::RedisFlush), [("calls", 1)], "nobody's journal needs redis");
    assert_eq!(found(|e| e.faults[0].kind = FaultKind::RollingRestart), [("calls", 1)], "a drain finishes its step");
    assert_eq!(found(|e| e.faults[0].kind = FaultKind::PauseApi), [("calls", 1)], "nobody's journal needs the API");
    assert_eq!(found(|e| e.faults[0].kind = FaultKind::PostgresRestart), [], "nothing could be recorded");
}

/// `one` is answered at 10,800 instead, and the second turn is requested again after that.
fn answered_later(e: &mut Evidence) {
    e.faults = vec![fault(FaultKind::PostgresRestart, None, 410, 900)];
    e.asked[1] = asked(1, "k1", "one", 10_700, 10_800);
    e.asked[2] = asked(2, "k1", "two", 12_000, 12_100);
    e.attempts = vec![attempt(1, 11, 50, 11_000, "lost"), attempt(2, 22, 11_900, 12_200, "finished")];
    e.steps[2] = step(3, 2, "turn", "k1", "{\"done\": \"#2#\"}", 12_110);
}

#[test]
fn only_an_abandoned_attempt_explains_an_unrecorded_answer() {
    assert_eq!(found(answered_later), []);
    let ended_as = |outcome: &'static str| {
        move |e: &mut Evidence| {
            answered_later(e);
            e.attempts[0].outcome = outcome.into();
        }
    };
    assert_eq!(found(ended_as("released")), []);
    for outcome in ["drained", "parked", "retrying"] {
        assert_eq!(found(ended_as(outcome)), [("calls", 1)], "{outcome}: it had the answer in its hands");
    }
    let in_the_fault = |e: &mut Evidence| e.faults[0] = fault(FaultKind::PostgresRestart, None, 410, 900);
    assert_eq!(found(in_the_fault), []);
    let recorded_by_itself = |e: &mut Evidence| {
        in_the_fault(e);
        e.attempts[0].outcome = "drained".into();
    };
    assert_eq!(found(recorded_by_itself), [("calls", 1)]);
    let by_another = |e: &mut Evidence| {
        answered_later(e);
        e.attempts[0].worker = worker(22).id;
        e.steps.drain(..2);
        e.effects.clear();
    };
    assert_eq!(found(by_another), [("calls", 1)], "another process gave up");
    let much_later = |e: &mut Evidence| {
        answered_later(e);
        e.faults[0].until = at(500);
    };
    assert_eq!(found(much_later), [("calls", 1)], "too long after it");
    let mut evidence = honest();
    answered_later(&mut evidence);
    assert_eq!(judge(&evidence).window, Window { calls: 1, longest_after: 9.9, ..Window::default() });
}

#[test]
fn consecutive_faults_explain_one_answer_each() {
    let two = |second: Option<Fault>| {
        move |e: &mut Evidence| {
            e.faults = vec![fault(FaultKind::PostgresRestart, None, 410, 900)];
            e.faults.extend(second);
            e.asked.push(asked(3, "k2", "one", 3_100, 3_200));
            e.asked.push(asked(4, "k2", "two", 7_120, 7_150));
            e.steps.push(step(4, 2, "turn", "k2", "answer #4#", 7_160));
        }
    };
    assert_eq!(found(two(Some(fault(FaultKind::EndSessions, None, 3_250, 3_260)))), []);
    assert_eq!(found(two(None)), [("calls", 1)]);
}

#[test]
fn fault_explains_one_call_per_execution() {
    let two = |e: &mut Evidence| {
        e.asked.push(asked(3, "k2", "one", 310, 405));
        e.asked.push(asked(4, "k2", "two", 7_120, 7_150));
        e.steps.push(step(4, 2, "turn", "k2", "answer #4#", 7_160));
    };
    assert_eq!(found(two), [("calls", 1)]);
}

#[test]
fn request_sent_on_waking_is_counted_separately() {
    let mut evidence = honest();
    evidence.faults.push(fault(FaultKind::PauseWorker, Some("one"), 1_000, 10_000));
    evidence.asked.push(asked(3, "k1", "one", 10_001, 10_100));
    assert_eq!(judge(&evidence).window.sent_on_waking, 1);
    // A partitioned process was awake all the time.
    evidence.faults[1].kind = FaultKind::PartitionWorker;
    assert_eq!(judge(&evidence).calls_repeated.len(), 1);
    evidence.faults[1].kind = FaultKind::PauseWorker;
    // Long after waking, the lease check must have stopped the request.
    evidence.asked[3].at = at(12_500);
    assert_eq!(judge(&evidence).calls_repeated.len(), 1);
}

#[test]
fn excess_requests_on_waking_are_found() {
    let woken = |sent: usize| {
        move |e: &mut Evidence| {
            e.faults.push(fault(FaultKind::PauseWorker, Some("one"), 1_000, 10_000));
            e.asked.extend((0..sent).map(|_| SeenRequest { answered_at: None, ..asked(3, "k1", "one", 10_001, 0) }));
        }
    };
    assert_eq!(found(woken(3)), []);
    assert_eq!(found(woken(5)), [("calls", 2)]);
    // Each pause has its own allowance.
    let twice = |e: &mut Evidence| {
        woken(3)(e);
        e.faults.push(fault(FaultKind::PauseWorker, Some("one"), 2_000, 30_000));
        e.asked.extend((0..3).map(|_| SeenRequest { answered_at: None, ..asked(6, "k1", "one", 30_001, 0) }));
    };
    assert_eq!(found(twice), []);
}

#[test]
fn repeated_side_effect_is_found_under_any_key() {
    assert_eq!(found(|e| e.effects.push(effect(1, CountedTool::Charge, 0, "c0", "two", 7_000))), [("effects", 1)]);
    assert_eq!(found(|e| e.effects.push(effect(1, CountedTool::Charge, 0, "c9", "two", 7_000))), [("effects", 1)]);
}

#[test]
fn idempotent_call_repeats_only_under_its_key() {
    let put = |key: &'static str| {
        move |e: &mut Evidence| {
            e.effects.push(effect(1, CountedTool::Put, 2, "p", "one", 300));
            e.effects.push(effect(2, CountedTool::Put, 2, key, "two", 7_000));
        }
    };
    assert_eq!(found(put("p")), []);
    assert_eq!(found(put("q")), [("effects", 1)]);
    assert_eq!(found(|e| e.effects[0].key.clear()), [("effects", 1)]);
}

#[test]
fn answer_recorded_without_a_lease_is_found() {
    // The dead worker's answer is recorded by the next attempt.
    assert_eq!(found(|e| e.steps[2].preview = Some("answer #1#".into())), [("stale", 1)]);
    // A call's result was written after its attempt had ended.
    assert_eq!(found(|e| e.steps[1].finished_at = Some(at(6_600))), [("stale", 1)]);
    // An answer was requested before the attempt started.
    assert_eq!(found(|e| e.asked[2].at = at(6_000)), [("stale", 1)]);
    // The holder of the lease is unknown, because its worker's row is gone.
    let forgotten = |e: &mut Evidence| {
        e.workers.remove(&worker(22).id);
        e.asked[2].process = "three".into();
        e.processes.push(Process { name: "three".into(), pid: 33 });
    };
    assert_eq!(found(forgotten), [("stale", 2)]);
    // A worker that is declared dead concludes an attempt.
    let dead = |e: &mut Evidence| {
        e.workers.insert(worker(22).id, AuditedWorker { dead_at: Some(at(7_150)), ..worker(22) });
    };
    assert_eq!(found(dead), [("stale", 1)]);
    assert_eq!(found(|e| e.steps[0].preview = Some("answer #77#".into())), [("stale", 1)], "the model never gave it");
}

#[test]
fn recorded_answer_without_its_number_is_found() {
    let says =
        |step: usize, text: Option<&'static str>| move |e: &mut Evidence| e.steps[step].preview = text.map(Into::into);
    for step in [0, 1, 2] {
        assert_eq!(found(says(step, Some("answer"))), [("stale", 1)]);
        assert_eq!(found(says(step, None)), [("stale", 1)]);
    }
    for text in OUTCOME_UNKNOWN {
        assert_eq!(found(says(1, Some(text))), [], "nobody knows what the call came to");
        assert_eq!(found(says(0, Some(text))), [("stale", 1)], "a turn has an answer or none");
    }
    // A call that has started and has no result yet.
    let begun = |e: &mut Evidence| {
        e.steps[1].preview = None;
        e.steps[1].state = "intent".into();
    };
    assert_eq!(found(begun), []);
}

#[test]
fn a_fault_whose_victim_held_nothing_is_found() {
    for kind in [FaultKind::KillWorker, FaultKind::PauseWorker, FaultKind::PartitionWorker] {
        // `one` holds from 50 to 6,500, `two` from 6,900 to 7,200.
        let hits = |process: &'static str, from: i64| {
            found(move |e| e.faults.push(fault(kind, Some(process), from, from + 100)))
        };
        assert_eq!(hits("one", 5_000), []);
        assert_eq!(hits("two", 5_000), [("leftovers", 1)]);
        assert_eq!(hits("two", 7_000), []);
        assert_eq!(hits("one", 7_000), [("leftovers", 1)]);
        assert_eq!(hits("three", 7_000), [("leftovers", 1)], "nobody knows it");
    }
    assert_eq!(found(|e| e.faults.push(fault(FaultKind::KillApi, None, 20_000, 20_300))), []);
    let held = |e: &mut Evidence| {
        e.attempts[1].ended_at = None;
        e.faults.push(fault(FaultKind::KillWorker, Some("two"), 9_000, 9_300));
    };
    assert_eq!(found(held), [], "it still holds it");
}

#[test]
fn database_findings_are_reported() {
    let history = |is_stale_write| BrokenHistory { execution: id(1), is_stale_write, what: "x".into() };
    assert_eq!(found(|e| e.histories.push(history(true))), [("stale", 1)]);
    assert_eq!(found(|e| e.histories.push(history(false))), [("histories", 1)]);
    assert_eq!(found(|e| e.leftovers = Leftovers { held: 2, parked: 1, ..Leftovers::default() }), [("leftovers", 2)]);
    assert_eq!(
        found(|e| e.leftovers = Leftovers { slots: 1, slot_waiters: 3, ..Leftovers::default() }),
        [("leftovers", 2)]
    );
    assert_eq!(found(|e| e.complaints.push("one ended by itself".into())), [("leftovers", 1)]);
}
