//! Schedules, served by APIs and workers over one database whose clock the tests move.

mod budgets;
mod cronsim;
mod firing;
mod once;
mod plans;
mod requests;

use std::time::Duration;

use chrono::{DateTime, SubsecRound, TimeDelta, Utc};
use longhaul_api::ApiOptions;
use longhaul_sdk::AgentSpec;
use longhaul_testkit::model::{Gate, ev_gate, ev_text, reply_events, reply_text};
use serde_json::{Value, json};

use crate::support::{
    api::{Answer, TestApi},
    fleet::{Fleet, PATIENCE, agent},
    wait::eventually,
};

/// An API and a fleet over one database, with the agent `a`.
struct Service {
    fleet: Fleet,
    api: TestApi,
}

impl Service {
    async fn start() -> Self {
        Self::of(&agent("a")).await
    }

    async fn of(agent: &AgentSpec) -> Self {
        let mut fleet = Fleet::start().await;
        fleet.set("LONGHAUL__WORKER__SWEEP_TICK_SECONDS", "0.2");
        fleet.store.put_shared_agent(agent).await.unwrap();
        fleet.llm.answer_with(|_| reply_text("done"));
        let api = TestApi::over(&fleet, ApiOptions::default()).await;
        Self { fleet, api }
    }

    /// Creates the schedule `s`, by default every hour.
    async fn create(&self, more: Value) -> Answer {
        let mut body = json!({"key": "s", "agent": "a", "input": {"prompt": "hi"}});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = self.api.acme.post("/v1/schedules", &body).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        answer
    }

    async fn show(&self, key: &str) -> Value {
        let answer = self.api.acme.get(&format!("/v1/schedules/{key}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.body
    }

    /// Firings of a schedule, oldest first.
    async fn firings(&self, key: &str) -> Vec<Value> {
        let page = self.api.acme.get(&format!("/v1/schedules/{key}/firings?limit=200")).await;
        assert_eq!(page.status, 200, "{}", page.text);
        let mut firings = page.body["firings"].as_array().unwrap().clone();
        firings.reverse();
        firings
    }

    /// Waits until the schedule `s` has so many firings, the last of them in this state.
    async fn until(&self, count: usize, state: &str) -> Vec<Value> {
        eventually(&format!("{count} firings, the last {state}"), PATIENCE, || async {
            let firings = self.firings("s").await;
            let is_there = firings.len() == count && firings.last().is_some_and(|last| last["state"] == state);
            if is_there { Ok(firings) } else { Err(format!("{firings:#?}")) }
        })
        .await
    }

    /// Moves the clock to the next tick of the schedule `s`, and returns the tick.
    async fn to_next_tick(&self) -> DateTime<Utc> {
        let tick: DateTime<Utc> = self.show("s").await["next_tick_at"].as_str().expect("a next tick").parse().unwrap();
        self.to(tick).await;
        tick
    }

    async fn to(&self, time: DateTime<Utc>) {
        let ahead = time - self.fleet.store.now().await.unwrap();
        self.fleet.advance(ahead.to_std().unwrap_or_default()).await;
    }

    /// Lets model calls wait at a gate.
    fn hold(&self) -> Gate {
        let gate = Gate::new();
        let held = gate.clone();
        self.fleet.llm.answer_with(move |_| reply_events([ev_gate(&held), ev_text("done")]));
        gate
    }

    async fn post(&self, path: &str) -> Answer {
        self.api.acme.post(&format!("/v1/schedules/s{path}"), &json!({})).await
    }
}

/// The states of firings.
fn states(firings: &[Value]) -> Vec<&str> {
    firings.iter().map(|firing| firing["state"].as_str().unwrap()).collect()
}

/// Now, to the second.
async fn now(fleet: &Fleet) -> DateTime<Utc> {
    fleet.store.now().await.unwrap().trunc_subsecs(0)
}

fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

fn at(firing: &Value) -> DateTime<Utc> {
    firing["tick"].as_str().unwrap().parse().unwrap()
}

fn minute() -> TimeDelta {
    TimeDelta::minutes(1)
}
