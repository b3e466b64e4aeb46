//! Rows of the wires of other clients: legs of answers, records, executions that are not stored.

use std::time::Duration;

use longhaul_domain::{ApiKeyId, ExecutionId, ExecutionStatus, RequestKind, WaitReason};
use longhaul_store::executions::claims::Claimed;
use longhaul_store::human_requests::{
    Decider, HumanRequest, NewDecision, NewHumanRequest, Verdict, call_hash, caller_call_hash,
};
use longhaul_store::tenants::scope::TenantScope;
use serde_json::{Value, json};

use crate::support::leases::{Conclusion, TestWorker, World};

const HOUR: Duration = Duration::from_secs(3_600);

/// Requests the results of calls that the caller runs, and waits for them.
async fn wait_for_caller(worker: &TestWorker, claimed: &Claimed, calls: &[u8]) -> Vec<HumanRequest> {
    let mut requests = Vec::new();
    for call in calls {
        let request = NewHumanRequest {
            execution_id: claimed.id,
            token: claimed.token,
            kind: RequestKind::ToolCall,
            call_key: [*call; 32],
            call_id: format!("call_{call}"),
            round: 0,
            tool: "look".into(),
            arguments: b"{}".to_vec(),
            shown: "{}".into(),
            redact: Vec::new(),
            schema: None,
            policy: None,
            allow_self: true,
            expires_in: HOUR,
        };
        requests.push(worker.writer.request(request).await.unwrap());
    }
    let park = Conclusion::Park { reason: WaitReason::Input, wait: Some(HOUR), wake_seq: claimed.wake_seq };
    worker.end(claimed, park).await.unwrap();
    requests
}

fn output(request: &HumanRequest) -> NewDecision {
    NewDecision {
        verdict: Verdict::Output { output: b"\"seen\"".to_vec() },
        hash: caller_call_hash(&request.call_key, "look", b"{}"),
        by: Decider { key_id: ApiKeyId(uuid::Uuid::nil()), key_name: "app".into(), person: None },
        reason: None,
    }
}

async fn submit(world: &World, overrides: Option<Value>) -> ExecutionId {
    let mut execution = world.new_execution().await;
    execution.overrides = overrides.map(|overrides| overrides.to_string());
    world.submit_all([execution]).await[0]
}

#[tokio::test]
async fn results_of_callers_begin_the_next_leg() {
    let world = World::create().await;
    let worker = world.worker().await;
    let id = submit(&world, None).await;
    for (leg, calls) in [(1, vec![1, 2]), (2, vec![3])] {
        let claimed = worker.claim_one().await;
        let requests = wait_for_caller(&worker, &claimed, &calls).await;
        let decisions: Vec<_> = requests.iter().map(|request| (request.id, output(request))).collect();
        let decisions: Vec<_> = decisions.iter().map(|(id, decision)| (*id, decision)).collect();
        let decide =
            async |tenant| world.store.decide_requests_in_leg(tenant, &decisions, json!({ "leg": leg })).await.unwrap();
        let other = world.store.ensure_tenant("other", None).await.unwrap().id;
        assert_eq!(decide(other).await, None, "of another tenant");
        let (decided, stored) = decide(world.tenant).await.unwrap();
        assert_eq!((decided.execution_id, decided.runnable_in.is_some()), (id, true));
        assert_eq!((stored.leg, &stored.request), (leg, &json!({ "leg": leg })));
        assert_eq!(usize::try_from(stored.after_seq).unwrap(), world.events(id).await.len());
        assert_eq!(decide(world.tenant).await, None, "they are decided");
        assert_eq!(world.store.legs(id).await.unwrap().last(), Some(&stored));
        assert_eq!(world.store.legs(id).await.unwrap().len(), usize::try_from(leg).unwrap());
    }
}

#[tokio::test]
async fn requests_are_found_by_id_within_their_tenant() {
    let world = World::create().await;
    let worker = world.worker().await;
    submit(&world, None).await;
    let claimed = worker.claim_one().await;
    let requests = wait_for_caller(&worker, &claimed, &[1, 2, 3]).await;
    let ids = [requests[2].id, requests[0].id];
    let found = world.store.requests_by_id(world.tenant, &ids).await.unwrap();
    assert_eq!(found.iter().map(|request| request.id).collect::<Vec<_>>(), [ids[1], ids[0]]);
    assert_ne!(found[0].hash, call_hash("look", b"{}"), "the result of one call only");
    let other = world.store.ensure_tenant("other", None).await.unwrap().id;
    assert_eq!(world.store.requests_by_id(other, &ids).await.unwrap(), []);
}

#[tokio::test]
async fn record_shows_the_wire_of_an_execution() {
    let world = World::create().await;
    let wire = json!({ "wire": "responses", "messages": [] });
    let id = submit(&world, Some(json!({ "wire": wire }))).await;
    let plain = submit(&world, None).await;
    let scope = TenantScope::from(world.tenant);
    let record = world.store.wire_record(&scope, id).await.unwrap().unwrap();
    assert_eq!((record.wire.as_ref(), record.status), (Some(&wire), ExecutionStatus::Pending));
    assert_eq!((record.session_id, record.is_unstored, record.event_seq), (None, false, 1));
    assert_eq!(world.store.wire_record(&scope, plain).await.unwrap().unwrap().wire, None);
    let other = world.store.ensure_tenant("other", None).await.unwrap().id;
    assert_eq!(world.store.wire_record(&other.into(), id).await.unwrap(), None);
    world.store.cancel_execution(world.tenant, id).await.unwrap();
    world.store.erase_execution(world.tenant, id).await.unwrap();
    let erased = world.store.wire_record(&scope, id).await.unwrap().unwrap();
    assert!(erased.wire.is_none() && erased.erased_at.is_some(), "{erased:?}");
}

#[tokio::test]
async fn unstored_execution_is_erased_after_its_end() {
    let world = World::create().await;
    let worker = world.worker().await;
    let id = submit(&world, Some(json!({ "wire": { "secret": 1 } }))).await;
    world.store.keep_unstored(id, HOUR).await.unwrap();
    let erase = async || world.store.erase_unstored(10).await.unwrap();
    assert_eq!(erase().await, [], "its time is not over");
    world.store.let_go_unstored(&[id]).await.unwrap();
    assert_eq!(erase().await, [], "it is under way");
    let claimed = worker.claim_one().await;
    worker.finish(&claimed).await.unwrap();
    assert_eq!(erase().await, [], "it is looked at again later");
    world.shift_clock(31.0).await;
    let erased = erase().await;
    assert_eq!(erased.iter().map(|execution| execution.id).collect::<Vec<_>>(), [id]);
    let record = world.store.wire_record(&world.tenant.into(), id).await.unwrap().unwrap();
    assert!(record.erased_at.is_some() && !record.is_unstored, "{record:?}");
    assert_eq!(erase().await, []);
}

#[tokio::test]
async fn erasure_takes_the_requests_of_legs() {
    let world = World::create().await;
    let worker = world.worker().await;
    let id = submit(&world, None).await;
    let claimed = worker.claim_one().await;
    let requests = wait_for_caller(&worker, &claimed, &[1]).await;
    let decision = output(&requests[0]);
    let decisions = [(requests[0].id, &decision)];
    world.store.decide_requests_in_leg(world.tenant, &decisions, json!("words")).await.unwrap().unwrap();
    world.store.cancel_execution(world.tenant, id).await.unwrap();
    world.store.erase_execution(world.tenant, id).await.unwrap();
    let legs = world.store.legs(id).await.unwrap();
    assert_eq!(legs.iter().map(|leg| (leg.leg, &leg.request)).collect::<Vec<_>>(), [(1, &Value::Null)]);
}
