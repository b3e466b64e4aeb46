//! `longhaul bench` as its users run it, on a small scale: every result comes with its floor, its costs, and the
//! server's durability settings.

use std::{process::Stdio, time::Duration};

use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::wait::within;

/// The program; see tests/Cargo.toml.
const PROGRAM: &str = env!("CARGO_BIN_EXE_longhaul-program");
/// Time limit for private servers and a few hundred executions on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

async fn bench(arguments: &[&str]) -> Value {
    let printed = run(arguments).await;
    for cost in ["wal_bytes_per_execution", "commits_per_execution"] {
        assert!(printed[cost].as_f64() > Some(0.0), "{cost}: {printed}");
    }
    for part in ["api", "worker", "postgres", "redis", "load_and_model"] {
        assert!(printed["cpu_seconds_per_1000_executions"][part].is_number(), "{part}: {printed}");
    }
    printed
}

async fn run(arguments: &[&str]) -> Value {
    let mut command = Command::new(PROGRAM);
    command.args(["--json", "bench"]).args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    let ended = within("the benchmark ends", PATIENCE, command.output()).await.unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let printed: Value = serde_json::from_slice(&ended.stdout).unwrap();
    let durable = json!({ "fsync": true, "synchronous_commit": "on", "full_page_writes": true });
    assert_eq!(printed["conditions"]["durable"], durable);
    assert!(printed["floor"]["per_second"].as_f64() > Some(0.0), "{printed}");
    printed
}

#[tokio::test]
async fn throughput_is_printed_with_its_floor() {
    let printed = bench(&["throughput", "--executions", "200", "--floor-executions", "200"]).await;
    assert!(printed["ratio_to_floor"].as_f64() > Some(0.0), "{printed}");
}

#[tokio::test]
async fn latency_counts_from_the_due_time() {
    let printed = bench(&["latency", "--rate", "20", "--seconds", "2"]).await;
    assert_eq!(printed["executions"], 40);
    assert!(printed["p99_ms"].as_f64() >= printed["p50_ms"].as_f64(), "{printed}");
    let (late, latest) =
        (printed["submits_sent_late"].as_u64().unwrap(), printed["latest_submit_ms"].as_f64().unwrap());
    assert!((late == 0) == (latest < 2.0), "{printed}");
    assert!(printed["max_ms"].as_f64() >= Some(latest - 0.1), "what was late counts: {printed}");
}

#[tokio::test]
async fn in_flight_is_printed_with_its_floor() {
    let arguments =
        ["in-flight", "--executions", "20", "--delay-ms", "100", "--waves", "3", "--floor-executions", "200"];
    let printed = bench(&arguments).await;
    assert!(printed["ratio_to_ideal"].as_f64() > Some(0.0), "{printed}");
    // Zero if the middle lies between two waves, each of which ends in one commit.
    assert!(
        printed["settled_ratio_to_ideal"].is_null() || printed["settled_ratio_to_ideal"].as_f64() >= Some(0.0),
        "{printed}"
    );
    assert!(printed["ratio_to_floor"].as_f64() > Some(0.0), "{printed}");
}

#[tokio::test]
async fn parked_executions_are_compared_with_an_idle_worker() {
    let printed = bench(&["parked", "--executions", "50", "--seconds", "1"]).await;
    for state in ["just_started", "idle_after_as_many", "while_parked"] {
        assert!(printed[state]["worker_megabytes"].as_f64() > Some(1.0), "{state}: {printed}");
        assert!(printed[state]["worker_percent_of_a_core"].is_number(), "{state}: {printed}");
    }
}

#[tokio::test]
async fn recovery_kills_workers_that_hold_executions() {
    let arguments = ["recovery", "--rounds", "1", "--rate", "10", "--pause-seconds", "11", "--delay-ms", "1500"];
    let printed = bench(&arguments).await;
    assert!(printed["run_again_seconds"]["cases"].as_u64() >= Some(1), "{printed}");
    let rates = printed["rates"].as_array().unwrap();
    assert_eq!(rates.len(), 1, "{printed}");
    assert!(rates.iter().all(|rate| rate["before"].as_f64() > Some(0.0)), "{printed}");
}

#[tokio::test]
async fn late_turns_of_a_long_execution_cost_as_early() {
    let printed = run(&["long", "--turns", "60", "--context-kb", "60"]).await;
    let request_bytes = printed["late"]["request_bytes"].as_f64().unwrap();
    assert!((54_000.0..66_000.0).contains(&request_bytes), "{printed}");
    for cost in ["wal_bytes", "commits", "stored_bytes"] {
        assert!(printed["early"][cost].as_f64() > Some(0.0), "{cost}: {printed}");
        assert!(printed["late_to_early"][cost].as_f64() < Some(1.1), "{cost}: {printed}");
    }
    let resumed = &printed["resumed"];
    assert!(resumed["after_claim_seconds"].as_f64() > Some(0.0), "{printed}");
    assert!(resumed["after_kill_seconds"].as_f64() > resumed["after_claim_seconds"].as_f64(), "{printed}");
    let readings = printed["readings"].as_array().unwrap();
    assert_eq!(readings.len(), 3, "{printed}");
    for reading in readings {
        assert!(reading["entries"].as_u64() >= Some(119), "a turn and its call: {reading}");
        assert!(reading["milliseconds"].as_f64() >= reading["page_milliseconds"].as_f64(), "{reading}");
    }
}

#[tokio::test]
async fn neighbours_start_while_each_attack_runs() {
    let small = ["--rate", "10", "--seconds", "1", "--connections", "2", "--requests", "8", "--waiting", "100"];
    let printed = run(&[&["neighbours"], &small[..]].concat()).await;
    let rows = printed["attacks"].as_array().unwrap();
    let names: Vec<_> = rows.iter().filter_map(|row| row["attack"].as_str()).collect();
    assert_eq!(
        names,
        ["plain", "schemas", "templates", "limits", "batches", "outage", "permits", "files", "lists", "streams"]
    );
    for row in rows {
        let name = row["attack"].as_str().unwrap();
        // An attack that holds a resource sends nothing that a plain load could be compared with.
        let holds = ["permits", "files", "lists", "streams"].contains(&name);
        let is_compared = name != "plain" && !holds;
        for window in ["quiet", "attacked"].into_iter().chain(is_compared.then_some("plain_load")) {
            assert_eq!(row[window]["executions"], if holds { 2 } else { 10 }, "{name}, {window}: {row}");
            assert_eq!((&row[window]["not_stored"], &row[window]["not_started"]), (&json!(0), &json!(0)), "{row}");
        }
        assert!(row["p99_ratio"].as_f64() > Some(0.0), "{row}");
    }
    let executions = |attack: usize, standing: &str| rows[attack]["executions"][standing].as_i64().unwrap_or_default();
    assert!(executions(2, "FAILED invalid_definition") > 0, "{}", rows[2]);
    assert!(executions(5, "FINISHED") > 0, "of those that waited: {}", rows[5]);
    assert!(rows[1]["answers"]["422 invalid_request"].as_u64() > Some(0), "{}", rows[1]);
    assert!(rows[4]["answers"]["item 422 input_contains_nul"].as_u64() > Some(0), "{}", rows[4]);
}

#[tokio::test]
async fn duties_run_as_often_in_a_larger_fleet() {
    let printed = run(&["sweep", "--workers", "4,40", "--held", "400", "--seconds", "4"]).await;
    let [small, large] = printed["fleets"].as_array().unwrap().as_slice() else { panic!("{printed}") };
    for (fleet, workers) in [(small, 4), (large, 40)] {
        assert_eq!((&fleet["workers"], &fleet["failures"]), (&json!(workers), &json!(0)), "{printed}");
        for cost in ["postgres_cpu_seconds_per_second", "statements_per_second", "looks_per_second"] {
            assert!(fleet[cost].as_f64() > Some(0.0), "{cost}: {printed}");
        }
    }
    // Due twice a second: a look may come just before the second is over.
    for duty in ["wake due executions", "republish wake-ups", "update model endpoints", "reap dead workers"] {
        let runs = |fleet: &Value| fleet["duties"][duty].as_f64().unwrap();
        assert!(runs(small) > 0.2 && runs(large) > 0.2, "{duty}: {printed}");
        assert!(runs(small) < 2.6 && runs(large) < 2.6, "{duty}: {printed}");
    }
}

#[tokio::test]
async fn chat_counts_every_piece_and_reader() {
    let arguments = ["--chats", "2", "--pieces", "10", "--idle", "20", "--seconds", "1", "--reconnects", "10"];
    let printed = run(&[&["chat"], &arguments[..]].concat()).await;
    assert_eq!(printed["pieces"], 20);
    assert!(printed["p99_ms"].as_f64() >= printed["p50_ms"].as_f64(), "{printed}");
    assert!(printed["reconnected_after_seconds"].as_f64() > Some(0.0), "{printed}");
}

/// Core-rules 28: each duty reads in proportion to what it changes.
#[tokio::test]
async fn no_duty_reads_rows_that_are_not_due() {
    let printed = run(&["duties", "--rows", "50000"]).await;
    let read = printed["buffers"].as_object().unwrap();
    assert!(read.len() >= 40, "{printed}");
    let most = printed["most"].as_i64().unwrap();
    let over: Vec<_> = read.iter().filter(|(_, buffers)| buffers.as_i64().unwrap() > most).collect();
    assert!(over.is_empty(), "more than {most} buffers: {over:?}");
    println!("filled in {} s: {read:?}", printed["fill_seconds"]);
}
