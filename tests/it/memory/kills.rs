//! A worker dies at each named point of a memory update: every episode is written once, and the graph as well.

use std::sync::{Arc, Mutex};

use longhaul_agent::probe::{Point, Probe};
use longhaul_testkit::model::reply_text;
use serde_json::json;

use super::{IDLE, Service, graph, is_update, remembered, remembering};
use crate::{
    support::{fleet::PATIENCE, wait::eventually},
    worker::journal::quick_fleet,
};

/// Points at which an update is cut off, in the order it passes them.
const POINTS: [Point; 9] = [
    Point::Claimed,
    Point::Restored,
    Point::EpisodesWritten,
    Point::BeforeTurn,
    Point::TurnAnswered,
    Point::TurnRecorded,
    Point::GraphWritten,
    Point::BeforeConclusion,
    Point::Concluded,
];

/// Stops one update for ever at each of the points, once each.
#[derive(Clone, Default)]
struct Cuts(Arc<Mutex<CutState>>);

#[derive(Default)]
struct CutState {
    /// Updates may be cut: the sessions have ended.
    is_armed: bool,
    /// Points and executions that were cut.
    done: Vec<(Point, longhaul_domain::ExecutionId)>,
}

impl Cuts {
    fn probe(&self) -> Probe {
        let state = self.0.clone();
        Probe::armed(move |point, id| {
            let mut state = state.lock().unwrap();
            let is_free = !state.done.iter().any(|(cut, by)| *cut == point || *by == id);
            if state.is_armed && POINTS.contains(&point) && is_free {
                state.done.push((point, id));
                return Box::pin(std::future::pending());
            }
            Box::pin(std::future::ready(()))
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn update_killed_at_any_point_writes_once() {
    let mut fleet = quick_fleet().await;
    fleet.set("LONGHAUL__WORKER__LEASE_SECONDS", "60");
    let service = Service::limited(fleet, remembering(json!({})), 0).await;
    service.fleet.llm.answer_with(|request| {
        let facts: [(&str, &str, &str, &[i32]); 1] = [("Ada", "owns", "Mirabelle", &[1])];
        if is_update(request) { graph(&["Ada", "Mirabelle"], &facts) } else { reply_text("Noted.") }
    });
    let cuts = Cuts::default();
    let doomed = service.fleet.worker_with(|builder| builder.probe(cuts.probe()));
    let mut sessions = Vec::new();
    for n in 0..POINTS.len() {
        let session = service.begin(json!({})).await;
        service.say(&session, &format!("Ada owns Mirabelle, {n}.")).await;
        service.say(&session, &format!("Ada says it again, {n}.")).await;
        service.until_idle(&session).await;
        sessions.push(session);
    }
    cuts.0.lock().unwrap().is_armed = true;
    service.fleet.advance(IDLE).await;
    eventually("an update stands at each point", PATIENCE, || async {
        let done = cuts.0.lock().unwrap().done.clone();
        if done.len() == POINTS.len() { Ok(()) } else { Err(format!("{done:?}")) }
    })
    .await;
    doomed.kill().await;
    service.fleet.bury_workers().await;
    let _survivor = service.fleet.worker();
    for session in &sessions {
        let source: uuid::Uuid = session.rsplit_once("sess_").unwrap().1.parse().unwrap();
        remembered(&service.fleet, source).await;
    }
    let counted = "select jsonb_build_object(
        'updates', (select count(*) from memory_updates), 'episodes', (select count(*) from memory_episodes),
        'different', (select count(distinct content) from memory_episodes),
        'relations', (select count(*) from memory_relations),
        'sources', (select count(*) from memory_relation_sources))";
    let sessions = sessions.len();
    let expected = json!({
        "updates": sessions, "episodes": 2 * sessions, "different": 2 * sessions, "relations": 1, "sources": sessions,
    });
    assert_eq!(service.fleet.json(counted).await, expected);
}
