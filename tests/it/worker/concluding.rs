//! An execution that has run and is only to be written down holds nobody up, as long as no more are written down than run.

use std::{sync::Arc, time::Duration};

use futures::FutureExt;
use longhaul_sdk::DefinitionSpec;
use longhaul_worker::probe::{Point, Probe};
use serde_json::{Value, json};
use tokio::{sync::Semaphore, time::timeout};

use crate::support::{
    fleet::{Fleet, PATIENCE, agent},
    llm::reply_text,
    wait::within,
};

/// What is not to happen would have happened by then.
const AT_ONCE: Duration = Duration::from_millis(500);

/// A time of a row, as Postgres writes it; of one day and one time zone, so in order as text.
fn time(row: &Value, name: &str) -> String {
    row[name].as_str().unwrap_or_else(|| panic!("{name} is not set: {row}")).to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_begins_while_the_end_of_one_is_written_and_the_one_after_it_does_not() {
    let mut fleet = Fleet::start().await;
    fleet.set("LONGHAUL__WORKER__CONCURRENCY", "1");
    fleet.apply(&agent("a"), &DefinitionSpec::new("d", "a")).await;
    fleet.llm.answer_with(|_| reply_text("{}"));
    let mut ids = Vec::new();
    for number in 0..3 {
        ids.push(fleet.submit("d", json!({ "number": number })).await);
    }
    let [first, second, third] = ids[..] else { panic!("three were submitted") };
    let [may_end, has_run, has_begun] = [(); 3].map(|()| Arc::new(Semaphore::new(0)));
    let (ending, running, beginning) = (may_end.clone(), has_run.clone(), has_begun.clone());
    let probe = Probe::armed(move |point, id| {
        if (point, id) == (Point::TurnAnswered, second) {
            running.add_permits(1);
        }
        if (point, id) == (Point::Claimed, third) {
            beginning.add_permits(1);
        }
        let ending = ending.clone();
        let is_held = (point, id) == (Point::BeforeConclusion, first);
        async move {
            if is_held {
                ending.acquire().await.unwrap().forget();
            }
        }
        .boxed()
    });
    let worker = fleet.worker_with(|builder| builder.probe(probe));
    // In the place of the first, which stands before its end.
    within("the second has run", PATIENCE, has_run.acquire()).await.unwrap().forget();
    // One runs, one is written down: the third has to wait until the first is.
    assert!(timeout(AT_ONCE, has_begun.acquire()).await.is_err());
    may_end.add_permits(1);
    let mut rows = Vec::new();
    for id in [first, second, third] {
        rows.push(fleet.ended(id).await);
    }
    assert!(rows.iter().all(|row| row["status"] == "FINISHED"), "{rows:?}");
    assert!(time(&rows[1], "started_at") < time(&rows[0], "finished_at"));
    assert!(time(&rows[2], "started_at") > time(&rows[0], "finished_at"));
    worker.drain().await;
}
