//! Two calls of one reply that differ only in their place in it (core-rules 8).

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use longhaul_agent::probe::{Point, Probe};
use longhaul_sdk::{Tool, ToolCallContext, ToolEffect, ToolFailure, ToolOutput, async_trait, spec::ToolRef};
use longhaul_testkit::model::{Gate, ev_call, reply_events, reply_text};
use serde_json::json;

use super::{
    durability::{Order, held_at, quick_fleet},
    kit::{Stage, any_answer, referring, results_in_order},
};
use crate::support::fleet::PATIENCE;

/// Pays once for each key, so it may run in parallel and again. Of two parallel calls, the one that came first ends
/// last.
#[derive(Clone)]
struct Pay {
    came: Arc<Mutex<Vec<String>>>,
    second_is_over: Gate,
}

#[async_trait]
impl Tool for Pay {
    type Args = Order;

    fn name(&self) -> &str {
        "pay"
    }

    fn description(&self) -> &str {
        "Pays."
    }

    fn effect(&self) -> ToolEffect {
        ToolEffect::Idempotent
    }

    async fn call(&self, _: Order, context: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
        let is_first = {
            let mut came = self.came.lock().unwrap();
            came.push(context.idempotency_key.clone());
            came.len() == 1
        };
        if is_first {
            self.second_is_over.pass().await;
        } else {
            self.second_is_over.open();
        }
        Ok(format!("paid under {}", context.idempotency_key).into())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn identical_calls_keep_keys_and_results_across_deaths() {
    // Calls that start together pass one point before it, and each passes the points after it by itself.
    let before = [(Point::TurnRecorded, 1), (Point::BeforeCall, 1)];
    let after = [Point::CallAnswered, Point::CallRecorded].into_iter().flat_map(|point| [(point, 1), (point, 2)]);
    for death in [None].into_iter().chain(before.into_iter().chain(after).map(Some)) {
        let (mut fleet, stage) = (quick_fleet().await, Stage::default());
        // A long lease, so that only the killed worker, which the test buries, loses it.
        fleet.set("LONGHAUL__WORKER__LEASE_SECONDS", "60");
        let pay = Pay { came: Arc::default(), second_is_over: Gate::new() };
        let mut agent = referring();
        agent.tools.push(ToolRef::Name("pay".into()));
        fleet.apply(&agent, &any_answer()).await;
        let twin = |id| ev_call(id, "pay", &json!({"call": "the same"}));
        fleet.llm.push(reply_events([twin("left"), twin("right")]));
        fleet.llm.push(reply_text("done"));
        let start =
            |probe: Probe| fleet.worker_with(|builder| stage.tools(builder).tool(pay.clone()).unwrap().probe(probe));
        let id = fleet.submit("d", json!({})).await;
        // Results on the record when the worker dies.
        let mut recorded: Vec<String> = Vec::new();
        if let Some((point, visit)) = death {
            let (probe, there) = held_at(point, visit);
            let dies = start(probe);
            let reached = tokio::time::timeout(PATIENCE, there.reached()).await;
            assert!(reached.is_ok(), "{death:?} is not reached");
            dies.kill().await;
            fleet.bury_workers().await;
            pay.second_is_over.open();
            recorded = sqlx::query_scalar(
                "select preview from steps where execution_id = $1 and kind = 'call' and state = 'live' order by seq",
            )
            .bind(id.0)
            .fetch_all(&fleet.db.pool)
            .await
            .unwrap();
        }
        let before = pay.came.lock().unwrap().len();
        let last = start(Probe::default());
        assert_eq!(fleet.ended(id).await["status"], "FINISHED", "{death:?}");
        last.drain().await;

        let came = pay.came.lock().unwrap().clone();
        let keys: BTreeSet<&str> = came.iter().map(String::as_str).collect();
        let told = results_in_order(&fleet.llm.requests()[1]);
        // The left call may start before the right one was read; then the broken reply holds the left one alone.
        let is_cut = death == Some((Point::BeforeCall, 1)) && told.len() == 1;
        let calls = if is_cut { &["left"][..] } else { &["left", "right"] };
        assert_eq!(told.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), calls, "{death:?}");
        assert_eq!(keys.len(), calls.len(), "{death:?}: {came:?}, told {told:?}");
        let paid: BTreeSet<&str> = told.iter().filter_map(|(_, text)| text.strip_prefix("paid under ")).collect();
        assert_eq!(paid, keys, "{death:?}: each is told what came of its own key");
        let again = &came[before..];
        assert_eq!(again.len(), calls.len() - recorded.len(), "{death:?}: {recorded:?}, and then {again:?}");
        for text in &recorded {
            assert!(again.iter().all(|key| !text.ends_with(key)), "{death:?}: {text} was on the record and ran again");
        }
        assert!(
            !matches!(death, Some((Point::CallRecorded, visit)) if recorded.len() < visit),
            "{death:?}: {recorded:?}"
        );
    }
}
