//! Executions and workers as the store sees them: submits without an API, leases without a runtime.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::requirements::is_other_build;
use longhaul_domain::{ExecutionId, MAX_DEADLINE, ServeKey, TenantId, WaitReason, WorkerId};
use longhaul_sdk::failure::{Failure, FailureClass, FailureCode};
use longhaul_store::executions::children::{NewChild, SpawnLease, SpawnRefused, TreeLimits};
use longhaul_store::executions::claims::{ClaimBounds, ClaimFor, ClaimRequest, Claimed};
use longhaul_store::executions::outcomes::{Concluded, LeaseEnd, LeaseKey};
use longhaul_store::executions::planned::Pinned;
use longhaul_store::executions::submit::{NewExecution, Submitted};
use longhaul_store::fleet::lease_writer::LeaseWriter;
use longhaul_store::fleet::workers::WorkerRecord;
use longhaul_store::history::journal::{JournalStep, JournalWrite, NewEvent, Recorded, StepKind, StepState, StepUsage};
use longhaul_store::{Store, StoreError, StoreOptions};
use sha2::{Digest, Sha256};
use sqlx::PgPool;
use uuid::Uuid;

use super::db::TestDb;

/// Longer than any test, so that a lease ends only when a test ends it.
pub(crate) const LONG_LEASE: Duration = Duration::from_secs(600);

/// Limits above those that any test needs.
pub(crate) const ROOMY: TreeLimits = TreeLimits { depth: 9, children: 1_000, executions: 10_000 };

/// A database with a store and a tenant.
pub(crate) struct World {
    pub(crate) db: TestDb,
    pub(crate) store: Store,
    pub(crate) tenant: TenantId,
}

impl World {
    pub(crate) async fn create() -> Self {
        Self::on(TestDb::create().await).await
    }

    /// A world over this database.
    pub(crate) async fn on(db: TestDb) -> Self {
        let store = Store::open(StoreOptions::new(db.url.clone())).unwrap();
        let tenant = store.ensure_tenant("acme", None).await.unwrap().id;
        Self { db, store, tenant }
    }

    pub(crate) fn pool(&self) -> &PgPool {
        &self.db.pool
    }

    /// One execution, ready to submit.
    pub(crate) async fn new_execution(&self) -> NewExecution {
        new_execution(&self.store, self.tenant).await
    }

    /// Submits `count` executions.
    pub(crate) async fn submit(&self, count: usize) -> Vec<ExecutionId> {
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(self.new_execution().await);
        }
        self.submit_all(items).await
    }

    pub(crate) async fn submit_all(&self, items: impl IntoIterator<Item = NewExecution>) -> Vec<ExecutionId> {
        let items: Vec<_> = items.into_iter().map(Arc::new).collect();
        let submitted = self.store.submit_executions(&items).await.unwrap();
        let id = |submitted| match submitted {
            Submitted::Created(id) => id,
            other => panic!("{other:?}"),
        };
        submitted.into_iter().map(id).collect()
    }

    /// Moves the clock of this database.
    pub(crate) async fn shift_clock(&self, seconds: f64) {
        sqlx::query("update clock set shift = shift + $1 * interval '1 second'")
            .bind(seconds)
            .execute(self.pool())
            .await
            .unwrap();
    }

    pub(crate) async fn worker(&self) -> TestWorker {
        TestWorker::start(&self.store).await
    }

    /// A worker of this build.
    pub(crate) async fn worker_of(&self, build: &str) -> TestWorker {
        TestWorker::of_build(&self.store, build).await
    }

    /// Status, wait reason and failure code of an execution.
    pub(crate) async fn standing(&self, id: ExecutionId) -> (String, Option<String>, Option<String>) {
        standing(self.pool(), id).await
    }

    /// Kinds of the execution's events; fails unless they are numbered from 1 without a gap.
    pub(crate) async fn events(&self, id: ExecutionId) -> Vec<String> {
        let rows: Vec<(i32, String)> =
            sqlx::query_as("select seq, kind from events where execution_id = $1 order by seq")
                .bind(id.0)
                .fetch_all(self.pool())
                .await
                .unwrap();
        for (expected, (seq, kind)) in (1..).zip(&rows) {
            assert_eq!(*seq, expected, "events of {id} have a gap before {kind}");
        }
        rows.into_iter().map(|(_, kind)| kind).collect()
    }

    /// Fails unless `execution_stats` equals `count(*)`, and parked rows, deadlines, children, requests and events
    /// fit their executions.
    pub(crate) async fn check(&self) {
        let stats = "select status, sum(executions)::bigint from execution_stats group by 1 order by 1";
        let truth = "select status::text, count(*) from executions group by 1 order by 1";
        let read = async |sql: &'static str| -> Vec<(String, i64)> {
            sqlx::query_as(sql).fetch_all(self.pool()).await.unwrap()
        };
        let mut stats: Vec<_> = read(stats).await;
        stats.retain(|(_, n)| *n != 0);
        assert_eq!(stats, read(truth).await, "execution_stats against count(*)");
        let astray: i64 = sqlx::query_scalar(
            "select (select count(*) from parked p join executions e on e.id = p.execution_id
                where e.wait_reason is distinct from p.wait_reason or e.wait_reason = 'worker')
             + (select count(*) from executions e left join parked p on p.execution_id = e.id
                where e.wait_reason <> 'worker' and p.execution_id is null)
             + (select count(*) from deadlines d join executions e on e.id = d.execution_id \
             where e.finished_at is not null)
             + (select count(*) from executions e where e.finished_at is null and e.open_children
                <> (select count(*) from executions c where c.parent_id = e.id and c.finished_at is null))
             + (select count(*) from human_requests r join executions e on e.id = r.execution_id
                where r.state = 'waiting' and e.finished_at is not null)
             + (select count(*) from executions e
                where e.event_seq <> (select count(*) from events v where v.execution_id = e.id))",
        )
        .fetch_one(self.pool())
        .await
        .unwrap();
        assert_eq!(astray, 0, "parked rows, deadlines, children, requests or events that do not fit their execution");
    }
}

pub(crate) async fn standing(pool: &PgPool, id: ExecutionId) -> (String, Option<String>, Option<String>) {
    sqlx::query_as("select status::text, wait_reason, failure_code from executions where id = $1")
        .bind(id.0)
        .fetch_one(pool)
        .await
        .unwrap()
}

pub(crate) async fn new_execution(store: &Store, tenant: TenantId) -> NewExecution {
    let pinned = Pinned {
        definition_key: "invoice".into(),
        definition_version_id: uuid::Uuid::nil().into(),
        agent_key: "clerk".into(),
        agent_version_id: uuid::Uuid::nil().into(),
        serve_key: ServeKey::default(),
        deadline: MAX_DEADLINE,
        active_timeout: Duration::from_secs(3_600),
        budget: None,
    };
    NewExecution::of(store.new_execution_id().await.unwrap(), tenant, pinned, r#"{"text":"total 12"}"#.into())
}

/// A registered worker that serves the queue `default` and does nothing by itself.
pub(crate) struct TestWorker {
    pub(crate) id: WorkerId,
    pub(crate) writer: LeaseWriter,
    /// Set in tests about builds: the worker then serves executions that need another build than those that died.
    build: Option<String>,
    store: Store,
}

/// An end of a lease as a test names it before it has the lease.
#[derive(Debug, Clone)]
pub(crate) enum Conclusion {
    Finish { output: String },
    Fail { failure: Failure },
    Retry { failure: Failure, delay: Duration, wake_seq: i32 },
    Park { reason: WaitReason, wait: Option<Duration>, wake_seq: i32 },
    Cancel,
    Release { drained: bool },
}

impl Conclusion {
    pub(crate) fn of(self, lease: LeaseKey) -> LeaseEnd {
        match self {
            Self::Finish { output } => lease.finish(output),
            Self::Fail { failure } => lease.fail(&failure),
            Self::Retry { failure, delay, wake_seq } => lease.retry(&failure, delay, wake_seq),
            Self::Park { reason, wait, wake_seq } => lease.park(reason, wait, wake_seq),
            Self::Cancel => lease.cancel(),
            Self::Release { drained: true } => lease.drain(),
            Self::Release { drained: false } => lease.release(),
        }
    }
}

impl TestWorker {
    pub(crate) async fn start(store: &Store) -> Self {
        Self::register(store, None).await
    }

    pub(crate) async fn of_build(store: &Store, build: &str) -> Self {
        Self::register(store, Some(build.to_owned())).await
    }

    async fn register(store: &Store, build: Option<String>) -> Self {
        let id = WorkerId::random();
        let record = WorkerRecord {
            id,
            host: "test".into(),
            pid: 1,
            build: build.clone().unwrap_or_else(|| "test".into()),
            queues: vec!["default".into()],
            serves: vec![String::new()],
            concurrency: 1_000,
        };
        store.register_worker(&record, LONG_LEASE).await.unwrap();
        Self { id, writer: LeaseWriter::spawn(store, id, Duration::from_secs(10)), build, store: store.clone() }
    }

    /// Serve keys that it satisfies: the empty one, and those that need nothing but another build.
    async fn serves(&self) -> Result<Vec<String>, StoreError> {
        let Some(build) = &self.build else { return Ok(vec![String::new()]) };
        let keys = self.store.serve_keys().await?.into_iter();
        let served = keys.filter(|(_, needs)| needs.iter().all(|need| is_other_build(need, build) == Some(true)));
        let serves: BTreeSet<String> = served.map(|(key, _)| key).chain([String::new()]).collect();
        Ok(serves.into_iter().collect())
    }

    pub(crate) async fn try_claim(&self, max: i32) -> Result<Vec<Claimed>, StoreError> {
        let serves = self.serves().await?;
        let request = ClaimRequest {
            worker: self.id,
            queues: &["default".to_owned()],
            serves: &serves,
            tenants: ClaimFor::AnyTenant,
            max,
            suspects: max,
            may_take_alone: true,
        };
        self.store.claim(&request, &ClaimBounds::default()).await.map(|claims| claims.claimed)
    }

    pub(crate) async fn claim(&self, max: i32) -> Vec<Claimed> {
        self.try_claim(max).await.unwrap()
    }

    /// Claims one execution; fails if there is none.
    pub(crate) async fn claim_one(&self) -> Claimed {
        let mut claimed = self.claim(1).await;
        assert_eq!(claimed.len(), 1, "nothing to claim");
        claimed.remove(0)
    }

    /// Tries to spawn children of `parent` under these spawn keys.
    pub(crate) async fn try_spawn(
        &self,
        parent: &Claimed,
        keys: std::ops::Range<u16>,
        limits: TreeLimits,
    ) -> Result<Result<Vec<ExecutionId>, SpawnRefused>, StoreError> {
        let mut children = Vec::new();
        for key in keys {
            let execution = new_execution(&self.store, parent.tenant_id).await;
            let mut spawn_key = [0; 32];
            spawn_key[..2].copy_from_slice(&key.to_be_bytes());
            children.push(NewChild { key: spawn_key, execution });
        }
        let lease = SpawnLease { worker: self.id, parent: parent.id, token: parent.token };
        self.store.spawn_children(lease, &children, limits).await
    }

    pub(crate) async fn spawn(&self, parent: &Claimed, keys: std::ops::Range<u16>) -> Vec<ExecutionId> {
        self.try_spawn(parent, keys, ROOMY).await.unwrap().unwrap()
    }

    pub(crate) async fn record(&self, write: JournalWrite) -> Result<Recorded, StoreError> {
        self.writer.record(write).await
    }

    pub(crate) async fn end(&self, claimed: &Claimed, conclusion: Conclusion) -> Result<Concluded, StoreError> {
        self.writer.conclude(conclusion.of(claimed.lease())).await
    }

    pub(crate) async fn finish(&self, claimed: &Claimed) -> Result<Concluded, StoreError> {
        self.end(claimed, Conclusion::Finish { output: r#"{"total":12}"#.into() }).await
    }

    /// Ends its lease now, as after a pause that was too long.
    pub(crate) async fn expire(&self) {
        sqlx::query(
            "update worker_heartbeats set expires_at = clock_timestamp() - interval '1 millisecond' \
             where worker_id = $1",
        )
        .bind(self.id.0)
        .execute(self.store.pool())
        .await
        .unwrap();
    }

    /// Ends its lease and declares it dead; nothing is reaped yet.
    pub(crate) async fn die(&self) {
        self.expire().await;
        let buried = bury(&self.store, Duration::ZERO).await;
        assert!(buried.contains(&self.id), "{buried:?}");
    }
}

/// Declares workers with an expired lease dead, as a worker does whose renewals were steady for longer than `lease`.
pub(crate) async fn bury(store: &Store, lease: Duration) -> Vec<WorkerId> {
    let id = Uuid::now_v7();
    sqlx::query(
        "with worker as (
             insert into workers (id, host, pid, build, queues, serves, concurrency)
             values ($1, 'bystander', 1, 'test', '{}', '{}', 0) returning id
         )
         insert into worker_heartbeats (worker_id, expires_at, steady_since)
         select id, clock_timestamp() + interval '1 hour', '-infinity' from worker",
    )
    .bind(id)
    .execute(store.pool())
    .await
    .unwrap();
    let buried = store.bury_expired_workers(lease).await.unwrap();
    sqlx::query("delete from workers where id = $1").bind(id).execute(store.pool()).await.unwrap();
    buried
}

/// Ends executions past their deadline, held or not, as the sweep does.
pub(crate) async fn end_overdue(store: &Store, grace: Duration) -> Vec<ExecutionId> {
    let mut ended = store.end_overdue(500).await.unwrap();
    let neglected = store.neglected(500, grace, Duration::ZERO).await.unwrap();
    ended.extend(store.end_held(&neglected, grace).await.unwrap());
    ended
}

/// A live step.
pub(crate) fn step(seq: i32, kind: StepKind, text: &str) -> JournalStep {
    JournalStep {
        seq,
        kind,
        state: StepState::Live,
        key: Sha256::digest(format!("{seq} {text}")).into(),
        occurrence: 0,
        name: Some("scripted".into()),
        appends: vec![text.as_bytes().into()],
        body: text.as_bytes().to_vec(),
        preview: Some(text.into()),
        failure_code: None,
        usage: StepUsage { input_tokens: Some(10), output_tokens: Some(2), ..StepUsage::default() },
        took: Duration::from_millis(3),
    }
}

/// The `write`-th write of a lease: these steps, with a message and an event each.
pub(crate) fn write(claimed: &Claimed, write: i32, steps: Vec<JournalStep>) -> JournalWrite {
    let event = |step: &JournalStep| NewEvent { kind: step.kind.as_str(), data: serde_json::json!({"seq": step.seq}) };
    let turns = i32::from(steps.iter().any(|step| step.kind == StepKind::Turn));
    JournalWrite {
        id: claimed.id,
        token: claimed.token,
        write,
        events: steps.iter().map(event).collect(),
        steps,
        turns,
        calls: 0,
        settlements: Vec::new(),
    }
}

pub(crate) fn transient() -> Failure {
    Failure::new(FailureClass::Transient, FailureCode::MODEL_UNREACHABLE, "the model could not be reached")
}
