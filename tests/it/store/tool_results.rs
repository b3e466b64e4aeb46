//! Results of calls that the caller runs, in the store: stored all or none, and each request of results is one wake.

use std::time::Duration;

use longhaul_domain::{ApiKeyId, RequestKind, RequestState, WaitReason};
use longhaul_store::executions::claims::Claimed;

use longhaul_store::human_requests::{Decider, HumanRequest, NewDecision, NewHumanRequest, Verdict};

use crate::support::leases::{Conclusion, TestWorker, World};

async fn ask(worker: &TestWorker, claimed: &Claimed, call: u8) -> HumanRequest {
    let request = NewHumanRequest {
        execution_id: claimed.id,
        token: claimed.token,
        kind: RequestKind::ToolCall,
        call_key: [call; 32],
        call_id: format!("c{call}"),
        round: 0,
        tool: "pick".into(),
        arguments: b"{}".to_vec(),
        shown: "{}".into(),
        redact: Vec::new(),
        schema: None,
        policy: None,
        allow_self: true,
        expires_in: Duration::from_secs(3_600),
    };
    worker.writer.request(request).await.unwrap()
}

fn result(request: &HumanRequest) -> NewDecision {
    NewDecision {
        verdict: Verdict::Output { output: b"1".to_vec() },
        hash: request.hash,
        by: Decider { key_id: ApiKeyId(uuid::Uuid::nil()), key_name: "app".into(), person: None },
        reason: None,
    }
}

fn park(claimed: &Claimed) -> Conclusion {
    Conclusion::Park { reason: WaitReason::Input, wait: None, wake_seq: claimed.wake_seq }
}

async fn wake_seq(world: &World, claimed: &Claimed) -> i32 {
    let sql = "select wake_seq from executions where id = $1";
    sqlx::query_scalar(sql).bind(claimed.id.0).fetch_one(world.pool()).await.unwrap()
}

async fn states(world: &World, claimed: &Claimed) -> Vec<RequestState> {
    let requests = world.store.requests_of(claimed.id).await.unwrap();
    requests.iter().map(|request| request.state).collect()
}

#[tokio::test]
async fn results_are_stored_all_or_none() {
    let world = World::create().await;
    let worker = world.worker().await;
    world.submit(1).await;
    let claimed = worker.claim_one().await;
    let (one, two) = (ask(&worker, &claimed, 1).await, ask(&worker, &claimed, 2).await);
    assert_ne!(one.hash, two.hash, "equal calls are told apart");
    worker.end(&claimed, park(&claimed)).await.unwrap();
    let (first, stale) = (result(&one), NewDecision { hash: [0; 32], ..result(&two) });
    let refused = world.store.decide_requests(world.tenant, &[(one.id, &first), (two.id, &stale)]).await.unwrap();
    assert_eq!((refused, states(&world, &claimed).await), (None, vec![RequestState::Waiting; 2]));
    let before = wake_seq(&world, &claimed).await;
    let second = result(&two);
    let stored = world.store.decide_requests(world.tenant, &[(two.id, &second), (one.id, &first)]).await.unwrap();
    assert!(stored.unwrap().runnable_in.is_some());
    assert_eq!(states(&world, &claimed).await, [RequestState::Answered; 2]);
    assert_eq!(wake_seq(&world, &claimed).await, before + 1, "one wake for both");
    let again = world.store.decide_requests(world.tenant, &[(one.id, &first)]).await.unwrap();
    assert_eq!(again, None);
    assert_eq!(worker.claim_one().await.id, claimed.id);
}

#[tokio::test]
async fn results_posted_at_once_are_all_kept() {
    let world = World::create().await;
    let worker = world.worker().await;
    world.submit(1).await;
    let claimed = worker.claim_one().await;
    let mut requests = Vec::new();
    for call in 0..8 {
        requests.push(ask(&worker, &claimed, call).await);
    }
    worker.end(&claimed, park(&claimed)).await.unwrap();
    let before = wake_seq(&world, &claimed).await;
    let posts = requests.iter().map(async |request| {
        let posted = result(request);
        world.store.decide_requests(world.tenant, &[(request.id, &posted)]).await.unwrap()
    });
    let stored = futures::future::join_all(posts).await;
    assert!(stored.iter().all(Option::is_some), "{stored:?}");
    assert_eq!(states(&world, &claimed).await, [RequestState::Answered; 8]);
    assert_eq!(wake_seq(&world, &claimed).await, before + 8);
    // Two requests with the same call: one finds nothing.
    let claimed = worker.claim_one().await;
    let (one, two) = (ask(&worker, &claimed, 21).await, ask(&worker, &claimed, 22).await);
    worker.end(&claimed, park(&claimed)).await.unwrap();
    let (first, second) = (result(&one), result(&two));
    let both = [(one.id, &first), (two.id, &second)];
    let (left, right) = tokio::join!(
        world.store.decide_requests(world.tenant, &both),
        world.store.decide_requests(world.tenant, &both[1..])
    );
    let count = usize::from(left.unwrap().is_some()) + usize::from(right.unwrap().is_some());
    assert_eq!(count, 1, "of two posts of one call, one is stored");
}

#[tokio::test]
async fn result_before_the_park_wakes_it() {
    let world = World::create().await;
    let worker = world.worker().await;
    world.submit(1).await;
    let claimed = worker.claim_one().await;
    let request = ask(&worker, &claimed, 1).await;
    let posted = result(&request);
    let stored = world.store.decide_requests(world.tenant, &[(request.id, &posted)]).await.unwrap().unwrap();
    assert_eq!(stored.runnable_in, None, "a worker holds it");
    worker.end(&claimed, park(&claimed)).await.unwrap();
    assert_eq!(worker.claim_one().await.id, claimed.id);
}
