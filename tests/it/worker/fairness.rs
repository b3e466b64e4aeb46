//! A tenant with ten thousand queued executions beside tenants with a few, on a saturated worker of six.
//!
//! The bounds, without a clock: as long as the kept permit is free, an execution of a tenant that holds none starts
//! although nothing ends; otherwise it starts with the next end of any execution. No execution of the big tenant
//! begins in between.

use std::sync::{Arc, Mutex};

use longhaul_domain::{ExecutionId, TenantId};
use longhaul_sdk::DefinitionSpec;
use longhaul_store::executions::submit::NewExecution;
use longhaul_testkit::model::{Gate, ev_finish, ev_gate, ev_text, reply_events};
use serde_json::json;

use crate::support::{
    fleet::{Fleet, FleetWorker, PATIENCE, agent},
    wait::eventually,
};

const QUEUED: usize = 10_000;
const CONCURRENCY: usize = 6;
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

/// A worker of [`CONCURRENCY`] whose permits the first tenant holds, with a long queue behind.
struct Saturated {
    fleet: Fleet,
    calls: Calls,
    worker: FleetWorker,
}

impl Saturated {
    async fn start() -> Self {
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
        let worker = fleet.worker();
        calls.until_began(CONCURRENCY).await;
        Self { fleet, calls, worker }
    }

    async fn submit(&self, tenant: TenantId) -> ExecutionId {
        let template = self.fleet.new_execution("d", json!({"text": "a single one"})).await;
        self.fleet.submit_new(NewExecution { tenant_id: tenant, ..template }).await
    }

    async fn tenant(&self, name: &str) -> TenantId {
        self.fleet.store.ensure_tenant(name, None).await.unwrap().id
    }

    /// Waits until the execution runs.
    async fn until_held(&self, id: ExecutionId) {
        self.fleet.until(id, "the execution is held", |row| !row["worker_id"].is_null()).await;
    }

    /// Number of calls of the first tenant that have begun.
    fn big_began(&self) -> usize {
        self.calls.0.lock().unwrap().iter().filter(|(is_single, _)| !is_single).count()
    }

    async fn end(self) {
        self.worker.begin_drain();
        self.calls.end_all();
        self.worker.drain().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newcomer_starts_although_no_permit_is_released() {
    let world = Saturated::start().await;
    let small = world.tenant("small").await;
    for round in 0..ROUNDS {
        let id = world.submit(small).await;
        world.calls.until_began(CONCURRENCY + round + 1).await;
        assert_eq!(world.big_began(), CONCURRENCY, "round {round}: the single execution began, and no other");
        world.calls.end_first(true);
        world.fleet.ended(id).await;
    }
    assert_eq!(world.fleet.llm.in_flight(), CONCURRENCY, "the big tenant alone has all permits");
    // The big tenant goes on as before.
    world.calls.end_first(false);
    world.calls.until_began(CONCURRENCY + ROUNDS + 1).await;
    assert_eq!(world.big_began(), CONCURRENCY + 1);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_kept_part_passes_next_release_to_newcomer() {
    let world = Saturated::start().await;
    let [first, second] = [world.tenant("first").await, world.tenant("second").await];
    let held = world.submit(first).await;
    world.until_held(held).await;
    world.calls.until_began(CONCURRENCY + 1).await;
    // The kept permit is taken; its holder submits more, as does a tenant that holds nothing.
    let more = world.submit(first).await;
    let newcomer = world.submit(second).await;
    world.calls.end_first(false);
    world.until_held(newcomer).await;
    world.calls.until_began(CONCURRENCY + 2).await;
    assert_eq!(world.big_began(), CONCURRENCY);
    // The next release fills up the kept part; of the one after it, the tenant with the fewest permits has more.
    world.calls.end_first(false);
    world.calls.end_first(false);
    world.until_held(more).await;
    world.calls.until_began(CONCURRENCY + 3).await;
    assert_eq!(world.big_began(), CONCURRENCY, "the big tenant still holds most");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundred_newcomers_start_beside_a_full_worker() {
    const TENANTS: usize = 100;
    let world = Saturated::start().await;
    let mut singles = Vec::new();
    for n in 0..TENANTS {
        let tenant = world.tenant(&format!("tenant-{n}")).await;
        singles.push(world.submit(tenant).await);
    }
    for ended in 1..=TENANTS {
        world.calls.until_began(CONCURRENCY + ended).await;
        world.calls.end_first(true);
    }
    for single in singles {
        world.fleet.ended(single).await;
    }
    assert_eq!(world.big_began(), CONCURRENCY, "none of the big tenant began or ended");
    world.end().await;
}

/// The process goes on under a new identity, so whatever it counted by mistake would stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_lease_leaves_no_permit_counted() {
    let world = Saturated::start().await;
    let small = world.tenant("small").await;
    let held = world.submit(small).await;
    world.calls.until_began(CONCURRENCY + 1).await;
    world.fleet.bury_workers().await;
    // The calls of the attempts that are over need not be waited for.
    world.calls.end_all();
    // The single execution is among those that start again.
    world.calls.until_began(2 * CONCURRENCY + 1).await;
    world.calls.end_first(true);
    world.fleet.ended(held).await;
    world.calls.until_began(2 * CONCURRENCY + 2).await;
    world.submit(small).await;
    world.calls.until_began(2 * CONCURRENCY + 3).await;
    world.end().await;
}
