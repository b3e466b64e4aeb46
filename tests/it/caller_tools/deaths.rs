//! A worker dies at each named point of a run with calls that the caller runs.

use longhaul_agent::probe::Point;
use longhaul_sdk::{AgentSpec, ToolEffect, spec::ToolRef};
use serde_json::json;

use super::{Bench, by_caller, output, tool};
use crate::{
    support::fleet::agent,
    worker::{journal::Holds, kit::TestTool},
};

const POINTS: [Point; 6] = [
    Point::TurnAnswered,
    Point::TurnRecorded,
    Point::PutBeforePeople,
    Point::CallRecorded,
    Point::BeforeConclusion,
    Point::Concluded,
];

#[tokio::test]
async fn worker_dies_while_calls_become_pending() {
    for point in POINTS {
        let tools = vec![tool(by_caller("pick")), ToolRef::Name("look".into())];
        let bench = Bench::of(AgentSpec { tools, ..agent("a") }).await;
        bench.script(vec![
            ("c1", "pick", json!({"value": 1})),
            ("c2", "pick", json!({})),
            ("c3", "look", json!({"value": 1})),
        ]);
        let look = TestTool::new("look", ToolEffect::ReadOnly, |_, _, _| Ok("seen".into()));
        let (holds, id) = (Holds::default(), bench.submit().await);
        holds.plan(id, point, 1);
        let (probe, first) = (holds.probe(), look.clone());
        let worker = bench.fleet.worker_with(|builder| builder.tool(first).unwrap().probe(probe));
        holds.all_held().await;
        worker.kill().await;
        let _next = bench.fleet.worker_with(|builder| builder.tool(look.clone()).unwrap());
        let pending = bench.waits_for(id, &["c1", "c2"]).await;
        let results = json!([output(&pending["c2"], json!(2)), output(&pending["c1"], json!(1))]);
        assert_eq!(bench.post(id, results).await.status, 200, "{point:?}");
        bench.finished(id).await;
        let texts: Vec<String> = bench.results().into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, ["1", "2", "seen"], "{point:?}");
        let asked = bench.fleet.store.requests_of(id).await.unwrap();
        assert_eq!(asked.len(), 2, "each call is requested once: {point:?}");
    }
}
