//! A worker dies at each named point of a run that changes its workspace.

use longhaul_agent::probe::Point;

use super::{Bench, bash, read, write};
use crate::{
    support::{fleet::PATIENCE, process::WorkerProcess, wait::eventually},
    worker::journal::Holds,
};

const POINTS: [(Point, usize); 6] = [
    (Point::TurnRecorded, 1),
    (Point::BeforeCall, 2),
    (Point::CallAnswered, 1),
    (Point::CallAnswered, 2),
    (Point::CallRecorded, 1),
    (Point::BeforeTurn, 2),
];

#[tokio::test(flavor = "multi_thread")]
async fn killed_worker_leaves_each_change_once() {
    for (point, visit) in POINTS {
        let Some(bench) = Bench::start().await else { return };
        bench.script([
            vec![write("log", "0\n"), bash("echo 1 >> log; date +%N > random; cat random")],
            vec![bash("echo 2 >> log; cat random")],
            vec![read("log"), read("random")],
        ]);
        let (holds, id) = (Holds::default(), bench.submit().await);
        holds.plan(id, point, visit);
        let probe = holds.probe();
        let worker = bench.fleet.worker_with(|builder| builder.probe(probe));
        holds.all_held().await;
        worker.kill().await;
        bench.fleet.bury_workers().await;
        let _next = bench.fleet.worker();
        let row = bench.fleet.ended(id).await;
        assert_eq!(row["status"], "FINISHED", "{point:?} {visit}: {row}");
        let results = bench.results();
        assert_eq!(results[3], "0\n1\n2\n", "{point:?} {visit}");
        let random = &results[4];
        assert_eq!(
            (&results[1], &results[2]),
            (random, random),
            "the result is that of the saved change: {point:?} {visit}"
        );
        assert_eq!(bench.fleet.llm.requests().len(), 4, "no turn is asked again: {point:?} {visit}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workspace_survives_a_process_killed_during_a_command() {
    let Some(bench) = Bench::start().await else { return };
    bench.script([
        vec![write("log", "0\n")],
        vec![bash("echo $((1 + $(wc -l < log))) >> log; sleep 2; date +%N > random; cat random")],
        vec![read("log"), read("random")],
    ]);
    let mut doomed = WorkerProcess::start(&bench.fleet).await;
    let id = bench.submit().await;
    eventually("the command runs", PATIENCE, || async {
        let turns = "select count(*) from steps where kind = 'turn'";
        let turns: i64 = sqlx::query_scalar(turns).fetch_one(&bench.fleet.db.pool).await.unwrap();
        if turns == 2 { Ok(()) } else { Err(turns) }
    })
    .await;
    doomed.kill();
    let _next = WorkerProcess::start(&bench.fleet).await;
    let row = bench.fleet.ended(id).await;
    assert_eq!(row["status"], "FINISHED", "{row}");
    let results = bench.results();
    assert_eq!(results[2], "0\n2\n", "the command of the dead worker changed nothing");
    assert_eq!(results[1], results[3]);
    assert_eq!(bench.fleet.llm.requests().len(), 4, "no turn is asked again");
}
