//! Core-rules 29: an item of a batch whose row is gone ends at once, with an error of its own or as done; it is not
//! repeated as if the row were locked.

use std::time::Duration;

use longhaul_domain::{LimitKey, RequestKind};
use longhaul_sdk::Usd;
use longhaul_sdk::spec::BudgetSpec;
use longhaul_store::StoreError;
use longhaul_store::executions::budgets::{CallPrice, Reservation};
use longhaul_store::executions::claims::Claimed;
use longhaul_store::history::journal::StepKind::Turn;
use longhaul_store::human_requests::NewHumanRequest;

use crate::support::leases::{World, step, write};
use crate::support::wait::within;

/// Far below the patience of a batch.
const AT_ONCE: Duration = Duration::from_secs(10);

async fn delete(world: &World, from: &'static str) {
    sqlx::query(from).execute(world.pool()).await.unwrap();
}

fn reservation(claimed: &Claimed) -> Reservation {
    Reservation {
        id: claimed.id,
        token: claimed.token,
        step_key: [1; 32],
        price: Some(CallPrice { prompt: Usd::ZERO, reply: Usd::ZERO }),
        prompt_tokens: 1,
        reply_tokens: 1,
        least_reply_tokens: 1,
        may_wait: true,
    }
}

fn request(claimed: &Claimed) -> NewHumanRequest {
    NewHumanRequest {
        execution_id: claimed.id,
        token: claimed.token,
        kind: RequestKind::Approval,
        call_key: [1; 32],
        call_id: "call_1".into(),
        round: 0,
        tool: "pay".into(),
        arguments: b"{}".to_vec(),
        shown: "{}".into(),
        redact: Vec::new(),
        schema: None,
        policy: None,
        allow_self: false,
        expires_in: Duration::from_secs(60),
    }
}

#[tokio::test]
async fn batch_items_without_their_budget_end_at_once() {
    let world = World::create().await;
    let worker = world.worker().await;
    let mut new = world.new_execution().await;
    new.budget = Some(BudgetSpec { max_model_calls: Some(9), ..BudgetSpec::default() });
    world.store.submit_executions(&[new.into()]).await.unwrap();
    let claimed = worker.claim_one().await;
    worker.writer.reserve(reservation(&claimed)).await.unwrap();
    delete(&world, "delete from budgets").await;
    delete(&world, "update reservations set state = 'settled'").await;

    let folded = within("the fold", AT_ONCE, worker.writer.fold_budget(claimed.root)).await;
    assert_eq!(folded.unwrap(), []);
    let left: i64 = sqlx::query_scalar("select count(*) from reservations").fetch_one(world.pool()).await.unwrap();
    assert_eq!(left, 0, "what was settled is folded by nobody any more");
    let reserved = within("the reservation", AT_ONCE, worker.writer.reserve(reservation(&claimed))).await;
    assert!(matches!(reserved, Err(StoreError::NotFound("budget"))), "{reserved:?}");
    within("the end", AT_ONCE, worker.finish(&claimed)).await.unwrap();
    world.check().await;
}

#[tokio::test]
async fn batch_items_without_their_execution_end_at_once() {
    let world = World::create().await;
    let worker = world.worker().await;
    world.submit(1).await;
    let claimed = worker.claim_one().await;
    delete(&world, "delete from executions").await;

    let recorded = within("the write", AT_ONCE, worker.record(write(&claimed, 1, vec![step(1, Turn, "said")]))).await;
    assert!(matches!(recorded, Err(StoreError::NotFound("execution"))), "{recorded:?}");
    let asked = within("the request", AT_ONCE, worker.writer.request(request(&claimed))).await;
    assert!(matches!(asked, Err(StoreError::LeaseLost)), "{asked:?}");
    let reserved = within("the reservation", AT_ONCE, worker.writer.reserve(reservation(&claimed))).await;
    assert!(matches!(reserved, Err(StoreError::LeaseLost)), "{reserved:?}");
    let ended = within("the end", AT_ONCE, worker.finish(&claimed)).await;
    assert!(matches!(ended, Err(StoreError::LeaseLost)), "{ended:?}");
}

#[tokio::test]
async fn child_ends_at_once_without_its_parent() {
    let world = World::create().await;
    let worker = world.worker().await;
    world.submit(1).await;
    let parent = worker.claim_one().await;
    worker.spawn(&parent, 0..1).await;
    let child = worker.claim_one().await;
    delete(&world, "delete from executions where parent_id is null").await;
    within("the request", AT_ONCE, worker.writer.request(request(&child))).await.unwrap();
    within("the end", AT_ONCE, worker.finish(&child)).await.unwrap();
}

#[tokio::test]
async fn freed_slots_without_their_limit_end_at_once() {
    let world = World::create().await;
    let worker = world.worker().await;
    world.store.put_limit(None, &LimitKey::parse("tenant").unwrap(), 1).await.unwrap();
    world.submit(1).await;
    let claimed = worker.claim_one().await;
    delete(&world, "delete from slots").await;
    delete(&world, "delete from limit_rules").await;
    within("the end", AT_ONCE, worker.finish(&claimed)).await.unwrap();
}
