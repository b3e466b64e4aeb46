//! A tenant with ten thousand queued executions beside a tenant with one, on a saturated worker of four.
//!
//! The bound, without a clock: if all four permits are held at the submit, **no** execution of the big tenant begins
//! between the single execution's submit and its start, and it starts when the first of the four running ones ends.
//! It so waits at most for the rest of one execution. (With a free permit, a claim may be under way whose snapshot
//! does not include the submit; then at most as many executions as there are free permits come first.)

use std::sync::{Arc, Mutex};

use longhaul_sdk::DefinitionSpec;
use longhaul_shared::domain::ExecutionId;
use longhaul_store::executions::submit::NewExecution;
use longhaul_testkit::model::{Gate, ev_finish, ev_gate, ev_text, reply_events};
use serde_json::json;

use crate::support::{
    fleet::{Fleet, PATIENCE, agent},
    wait::eventually,
};

const QUEUED: usize = 10_000;
const CONCURRENCY: usize = 4;
/// Number of times the small tenant submits.
const ROUNDS: usize = 5;

/// Model calls held at their gates, in order of arrival.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<Vec<(bool, Gate)>>>);

impl Calls {
    fn enter(&self, is_single: bool) -> Gate {
        let gate = Gate::new();
        self.0.lock().unwrap().push((is_single, gate.clone()));
        gate
    }

    fn began(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Ends the oldest running call, of the single execution or of the big tenant.
    fn end_first(&self, of_single: bool) {
        let calls = self.0.lock().unwrap();
        let (_, gate) = calls.iter().find(|(is_single, gate)| *is_single == of_single && !gate.is_open()).unwrap();
        gate.open();
    }

    fn end_all(&self) {
        self.0.lock().unwrap().iter().for_each(|(_, gate)| gate.open());
    }

    /// Waits until `count` model calls have begun.
    async fn until_began(&self, count: usize) {
        eventually(&format!("{count} model calls begin"), PATIENCE, async || {
            let began = self.began();
            if began == count { Ok(()) } else { Err(format!("{began}")) }
        })
        .await;
    }
}

/// Submits in batches, as a group commit does.
async fn queue_up(fleet: &Fleet, template: &NewExecution) {
    let mut left = QUEUED;
    while left > 0 {
        let mut batch = Vec::new();
        for _ in 0..left.min(500) {
            batch
                .push(Arc::new(NewExecution { id: fleet.store.new_execution_id().await.unwrap(), ..template.clone() }));
        }
        left -= batch.len();
        fleet.store.submit_executions(&batch).await.unwrap();
    }
}

/// Number of executions of other tenants that began between this one's submit and its start.
async fn began_before(fleet: &Fleet, id: ExecutionId) -> i64 {
    sqlx::query_scalar(
        "select count(*) from executions e join executions single on single.id = $1
         where e.tenant_id <> single.tenant_id and e.started_at > single.created_at \
         and e.started_at <= single.started_at",
    )
    .bind(id.0)
    .fetch_one(&fleet.db.pool)
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backlog_delays_another_tenant_by_one_execution() {
    let mut fleet = Fleet::start().await;
    fleet.set("LONGHAUL__WORKER__CONCURRENCY", &CONCURRENCY.to_string());
    fleet.apply(&agent("a"), &DefinitionSpec::new("d", "a")).await;
    let calls = Calls::default();
    let entering = calls.clone();
    fleet.llm.answer_with(move |request| {
        let is_single = request.messages().iter().any(|message| message.to_string().contains("a single one"));
        let gate = entering.enter(is_single);
        reply_events([ev_gate(&gate), ev_text("{}"), ev_finish("stop")])
    });
    queue_up(&fleet, &fleet.new_execution("d", json!({"text": "one of many"})).await).await;
    let small = fleet.store.ensure_tenant("small", None).await.unwrap().id;
    let worker = fleet.worker();
    calls.until_began(CONCURRENCY).await;

    let mut began = CONCURRENCY;
    for round in 0..ROUNDS {
        // Saturated: the gates hold as many model calls as the worker has permits.
        assert_eq!(fleet.llm.in_flight(), CONCURRENCY);
        let template = fleet.new_execution("d", json!({"text": "a single one"})).await;
        let id = fleet.submit_new(NewExecution { tenant_id: small, ..template }).await;
        assert_eq!(calls.began(), began, "nothing begins without a permit");
        calls.end_first(false);
        began += 1;
        calls.until_began(began).await;
        let is_single = calls.0.lock().unwrap()[began - 1].0;
        assert!(is_single, "round {round}: an execution of the big tenant began although the single one waited");
        assert_eq!(began_before(&fleet, id).await, 0, "round {round}");
        // The single execution ends, and the big tenant has all permits again.
        calls.end_first(true);
        began += 1;
        calls.until_began(began).await;
        assert!(!calls.0.lock().unwrap()[began - 1].0);
    }
    let waiting: i64 = sqlx::query_scalar("select count(*) from executions where wait_reason = 'worker'")
        .fetch_one(&fleet.db.pool)
        .await
        .unwrap();
    assert!(usize::try_from(waiting).unwrap() > QUEUED - 100, "there was a backlog all the time: {waiting}");
    worker.begin_drain();
    calls.end_all();
    worker.drain().await;
}
