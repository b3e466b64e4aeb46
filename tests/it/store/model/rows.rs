//! One row type for the state of the model and of Postgres.

use std::collections::HashMap;

use longhaul_model::rows::{Asked, End, Reservation, State, Wait};
use longhaul_model::{Scenario, Work};
use sqlx::PgPool;
use uuid::Uuid;

/// One unit of the model's budget in billionths of a dollar.
pub(crate) const UNIT: i64 = 1_000_000_000;

/// An execution with its dependent rows.
#[derive(Debug, PartialEq, Eq, sqlx::FromRow)]
pub(crate) struct Row {
    status: String,
    failure_code: Option<String>,
    wait_reason: Option<String>,
    parked: Option<String>,
    worker_id: Option<Uuid>,
    /// Token of the current lease, if held.
    lease_token: Option<Uuid>,
    attempt: i32,
    lease_write: i32,
    is_cancelled: bool,
    wake_seq: i32,
    steps: i64,
    /// One for each step: a write that is applied twice adds to it again.
    turns: i32,
    /// Number of leases that their worker ended.
    ended: i64,
    request: Option<String>,
    open_children: i32,
    reservation: Option<String>,
}

/// Cap, spent and reserved amount of a budget.
pub(crate) type Budget = (i64, i64, i64);

pub(crate) async fn stored(pool: &PgPool, id: Uuid) -> Row {
    sqlx::query_as(
        "select e.status::text as status, e.failure_code, e.wait_reason,
            (select p.wait_reason from parked p where p.execution_id = e.id) as parked, e.worker_id,
            case when e.worker_id is not null then e.lease_token end as lease_token, e.attempt, e.lease_write,
            e.cancel_requested_at is not null as is_cancelled, e.wake_seq,
            (select count(*) from steps s where s.execution_id = e.id and s.state = 'live') as steps, e.turns,
            (select count(*) from attempts a where a.execution_id = e.id and a.outcome <> 'lost') as ended,
            (select r.state from human_requests r where r.execution_id = e.id) as request, e.open_children,
            (select case when r.state = 'open' and r.lease_token is null then 'granted' else r.state end
                from reservations r where r.execution_id = e.id) as reservation
        from executions e where e.id = $1",
    )
    .bind(id)
    .fetch_one(pool)
    .await
    .unwrap()
}

pub(crate) async fn stored_budget(pool: &PgPool, root: Uuid) -> Budget {
    sqlx::query_as("select max_cost, spent_cost, reserved_cost from budgets where root_id = $1")
        .bind(root)
        .fetch_one(pool)
        .await
        .unwrap()
}

/// Number of deaths that the execution was held at since its last step.
pub(crate) async fn crashes(pool: &PgPool, id: Uuid) -> i16 {
    sqlx::query_scalar("select crash_count from executions where id = $1").bind(id).fetch_one(pool).await.unwrap()
}

fn name(wait: Wait) -> String {
    match wait {
        Wait::Worker => "worker",
        Wait::Backoff => "retry_backoff",
        Wait::Approval => "approval",
        Wait::Children => "children",
        Wait::Budget => "budget",
        Wait::Slot => "concurrency_limit",
    }
    .to_owned()
}

/// The model's state of an execution, with the ids of the real workers and leases.
pub(crate) fn modelled(state: &State, at: u8, workers: &[Uuid], tokens: &HashMap<(u8, u8), Uuid>) -> Row {
    let row = state.execution(at);
    let (status, failure_code) = match row.end {
        Some(End::Finished) => ("FINISHED", None),
        Some(End::Cancelled) => ("FAILED", Some("cancelled")),
        Some(End::Convicted) => ("FAILED", Some("crash_loop")),
        None if row.token == 0 => ("PENDING", None),
        None => ("IN_PROGRESS", None),
    };
    Row {
        status: status.to_owned(),
        failure_code: failure_code.map(str::to_owned),
        wait_reason: row.wait.map(name),
        parked: row.parked.map(|parked| name(parked.wait)),
        worker_id: row.worker.map(|worker| workers[usize::from(worker)]),
        lease_token: row.worker.map(|_| tokens[&(at, row.token)]),
        attempt: row.token.into(),
        lease_write: row.write.into(),
        is_cancelled: row.cancel,
        wake_seq: row.wake_seq.into(),
        steps: i64::try_from(row.steps.len()).unwrap(),
        turns: i32::try_from(row.steps.len()).unwrap(),
        ended: row.ended.count_ones().into(),
        request: row.asked.map(|asked| {
            match asked {
                Asked::Waiting => "waiting",
                Asked::Decided => "approved",
                Asked::Closed => "closed",
            }
            .to_owned()
        }),
        open_children: row.open_children.into(),
        reservation: row.reservation.map(|reservation| {
            match reservation {
                Reservation::Waiting => "waiting",
                Reservation::Open(None) => "granted",
                Reservation::Open(Some(_)) => "open",
                Reservation::Settled(_) => "settled",
            }
            .to_owned()
        }),
    }
}

pub(crate) fn modelled_budget(state: &State) -> Budget {
    let units = |units: u8| i64::from(units) * UNIT;
    (units(state.budget.cap), units(state.budget.spent), units(state.budget.reserved))
}

/// Index of the execution that the model's budget belongs to.
pub(crate) fn payer(scenario: &Scenario) -> u8 {
    let at = scenario.work.iter().position(|work| *work == Work::Pays).unwrap();
    u8::try_from(at).unwrap()
}
