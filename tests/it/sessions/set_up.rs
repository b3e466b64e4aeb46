//! The set-up of a session: the agent's personality, memory and project in its first prompt, asked for once.

use std::sync::{Arc, Mutex};

use longhaul_agent::probe::Point;
use longhaul_sdk::{
    async_trait,
    context::{ContextProvider, ContextQuery, ContextUnavailable, Memories},
};
use longhaul_testkit::model::{Gate, ev_gate, ev_text, reply_events, reply_text};
use serde_json::json;
use tokio::sync::Barrier;

use super::{Service, id_of};
use crate::{
    support::fleet::{Fleet, FleetWorker, agent},
    worker::journal::Holds,
};

/// A memory whose answers differ each time.
#[derive(Clone, Default)]
struct Stub(Arc<Mutex<Asked>>);

#[derive(Default)]
struct Asked {
    memories: usize,
    projects: usize,
    is_away: bool,
}

#[async_trait]
impl ContextProvider for Stub {
    async fn memories(&self, query: ContextQuery<'_>) -> Result<Memories, ContextUnavailable> {
        let mut asked = self.0.lock().unwrap();
        asked.memories += 1;
        if asked.is_away {
            return Err(ContextUnavailable("away".into()));
        }
        assert_eq!(query.agent, "a");
        let episodes = (1..=25).map(|n| format!("episode {n}")).collect();
        Ok(Memories { episodes, relevant: vec![format!("answer {} about {}", asked.memories, query.message)] })
    }

    async fn project(&self, query: ContextQuery<'_>) -> Result<Option<String>, ContextUnavailable> {
        let mut asked = self.0.lock().unwrap();
        asked.projects += 1;
        let projects = [("#books", "Books: close the year."), ("#rent", "Rent: find a flat.")];
        let of_message = projects.iter().find(|(tag, _)| query.message.contains(tag));
        Ok(of_message.map(|(_, project)| (*project).to_owned()))
    }
}

impl Stub {
    fn asked(&self) -> (usize, usize) {
        let asked = self.0.lock().unwrap();
        (asked.memories, asked.projects)
    }
}

async fn service() -> Service {
    let mut own = agent("a");
    own.personality = Some("You are patient.".into());
    Service::of(Fleet::start().await, own).await
}

fn worker(service: &Service, stub: &Stub, holds: &Holds) -> FleetWorker {
    service.fleet.worker_with(|builder| builder.context(stub.clone()).probe(holds.probe()))
}

/// Roles and texts of the last request's messages.
fn sent(service: &Service) -> Vec<(String, String)> {
    let request = service.fleet.llm.requests().pop().unwrap();
    let text = |message: &serde_json::Value| message["content"].as_str().unwrap().to_owned();
    request.messages().iter().map(|message| (message["role"].as_str().unwrap().to_owned(), text(message))).collect()
}

#[tokio::test]
async fn set_up_follows_the_seeds_order() {
    let (service, stub) = (service().await, Stub::default());
    service.fleet.llm.answer_with(|_| reply_text("yes"));
    let _worker = worker(&service, &stub, &Holds::default());
    let session = service.begin(json!({})).await;
    service.say(&session, "one #books").await;
    let first = sent(&service);
    assert_eq!(first.iter().map(|(role, _)| role.as_str()).collect::<Vec<_>>(), ["system", "user"]);
    let told = &first[0].1;
    assert!(told.starts_with("You are patient.\n\ntalk\n\nMemory\nMaterial from earlier conversations"), "{told}");
    assert!(told.contains("\n\nRecent episodes\n- episode 6\n"), "the last twenty: {told}");
    let end = "Relevant memories\n- answer 1 about one #books\n\nProject\nBooks: close the year.";
    assert!(told.ends_with(end), "{told}");

    service.say(&session, "two #books").await;
    let second = sent(&service);
    assert_eq!(second[..2], first, "the prefix stays");
    assert_eq!(second[2..].len(), 2, "neither memory nor the same project again: {second:?}");
    assert_eq!(stub.asked(), (1, 2));
}

#[tokio::test]
async fn project_joins_a_later_message() {
    let (service, stub) = (service().await, Stub::default());
    service.fleet.llm.answer_with(|_| reply_text("yes"));
    let _worker = worker(&service, &stub, &Holds::default());
    let session = service.begin(json!({})).await;
    service.say(&session, "one").await;
    service.say(&session, "two #books").await;
    let sent = sent(&service);
    assert_eq!(sent.iter().map(|(role, _)| role.as_str()).collect::<Vec<_>>(), ["system", "user", "assistant", "user"]);
    assert_eq!(sent[3].1, "Project\nBooks: close the year.\n\ntwo #books");
}

#[tokio::test]
async fn project_that_is_back_is_sent_again() {
    let (service, stub) = (service().await, Stub::default());
    service.fleet.llm.answer_with(|_| reply_text("yes"));
    let _worker = worker(&service, &stub, &Holds::default());
    let session = service.begin(json!({})).await;
    for message in ["one #books", "two #rent", "three #books", "four", "five #books"] {
        service.say(&session, message).await;
    }
    let sent = sent(&service);
    let texts: String = sent.iter().map(|(_, text)| format!("\n{text}")).collect();
    let projects = texts.split("\nProject\n").skip(1).filter_map(|text| text.split_once(':'));
    let projects: Vec<&str> = projects.map(|(project, _)| project).collect();
    assert_eq!(projects, ["Books", "Rent", "Books"], "a message without a project ends none");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_new_context_is_committed_before_the_turn() {
    let (service, stub) = (service().await, Stub::default());
    let _worker = worker(&service, &stub, &Holds::default());
    let session = service.begin(json!({})).await;
    for (message, is_new) in [("one #books", true), ("two #books", false), ("three #rent", true)] {
        let gate = Gate::new();
        service.fleet.llm.push(reply_events([ev_gate(&gate), ev_text("yes")]));
        let id = id_of(&service.send(&session, message).await);
        gate.reached().await;
        let steps: Vec<String> = service.fleet.steps(id).await.into_iter().map(|(kind, _)| kind).collect();
        assert_eq!(steps, if is_new { vec!["prompt"] } else { vec![] }, "{message}");
        gate.open();
        assert_eq!(service.fleet.ended(id).await["status"], "FINISHED");
    }
}

/// A provider whose methods answer only while both are asked.
struct Both(Barrier);

#[async_trait]
impl ContextProvider for Both {
    async fn memories(&self, _query: ContextQuery<'_>) -> Result<Memories, ContextUnavailable> {
        self.0.wait().await;
        Ok(Memories { episodes: vec!["a".into()], ..Memories::default() })
    }

    async fn project(&self, _query: ContextQuery<'_>) -> Result<Option<String>, ContextUnavailable> {
        self.0.wait().await;
        Ok(Some("b".into()))
    }
}

#[tokio::test]
async fn memory_and_project_are_asked_at_once() {
    let service = service().await;
    service.fleet.llm.push(reply_text("yes"));
    let _worker = service.fleet.worker_with(|builder| builder.context(Both(Barrier::new(2))));
    let session = service.begin(json!({})).await;
    service.say(&session, "one").await;
    let texts: Vec<String> = sent(&service).into_iter().map(|(_, text)| text).collect();
    assert!(texts[0].ends_with("\n\nRecent episodes\n- a\n\nProject\nb"), "{}", texts[0]);
    assert_eq!(texts[1..], ["one"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn resume_sends_the_recorded_memory() {
    let (service, stub, holds) = (service().await, Stub::default(), Holds::default());
    let gate = Gate::new();
    service.fleet.llm.push(reply_events([ev_text("I "), ev_gate(&gate)]));
    service.fleet.llm.answer_with(|_| reply_text("yes"));
    let doomed = worker(&service, &stub, &holds);
    let session = service.begin(json!({})).await;
    let id = id_of(&service.send(&session, "one").await);
    gate.reached().await;
    assert_eq!(holds.visits(id, Point::BeforeTurn), 1);
    doomed.kill().await;
    service.fleet.bury_workers().await;
    let _survivor = worker(&service, &stub, &holds);
    assert_eq!(service.fleet.ended(id).await["status"], "FINISHED");
    let requests = service.fleet.llm.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0].raw, requests[1].raw);
    assert_eq!(stub.asked(), (1, 1));
}

#[tokio::test]
async fn session_begins_without_an_unavailable_memory() {
    let (service, stub) = (service().await, Stub::default());
    stub.0.lock().unwrap().is_away = true;
    service.fleet.llm.answer_with(|_| reply_text("yes"));
    let _worker = worker(&service, &stub, &Holds::default());
    let session = service.begin(json!({})).await;
    assert_eq!(service.say(&session, "one").await["status"], "FINISHED");
    assert_eq!(sent(&service).len(), 2);
}
