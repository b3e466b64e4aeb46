//! Skills in a conversation: offered in the system prompt, loaded once, pinned with the agent's version.

use std::path::Path;

use longhaul_agent::probe::Point;
use longhaul_api::ApiOptions;
use longhaul_cli::spec_files::SpecFiles;
use longhaul_domain::ExecutionId;
use longhaul_sdk::{AgentSpec, spec::SkillSpec};
use longhaul_testkit::model::{reply_calls, reply_text};
use serde_json::{Value, json};

use super::{agent_with, refunds, spec, with};
use crate::{
    support::{api::TestApi, fleet::Fleet},
    worker::journal::{Holds, quick_fleet},
};

/// A fleet with the agent `a`, its skill, and a session with it.
struct Conversation {
    fleet: Fleet,
    api: TestApi,
    session: String,
}

impl Conversation {
    async fn start() -> Self {
        let fleet = Fleet::start().await;
        fleet.store.put_skill(None, &spec(refunds())).await.unwrap();
        fleet.store.put_shared_agent(&agent(&["refunds"])).await.unwrap();
        let options = ApiOptions { max_running_sessions: 0, ..ApiOptions::default() };
        let api = TestApi::over(&fleet, options).await;
        let answer = api.acme.post("/v1/sessions", &json!({"agent": "a"})).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        let session = format!("/v1/sessions/{}", answer.body["id"].as_str().unwrap());
        Self { fleet, api, session }
    }

    async fn say(&self, message: &str) {
        let sent = self.api.acme.post(&format!("{}/messages", self.session), &json!({ "message": message })).await;
        assert_eq!(sent.status, 202, "{}", sent.text);
        let id: ExecutionId = sent.body["execution_id"].as_str().unwrap().parse().unwrap();
        let row = self.fleet.ended(id).await;
        assert_eq!(row["status"], "FINISHED", "{row}");
    }

    /// Results of tools in the model's last request.
    fn results(&self) -> Vec<String> {
        let requests = self.fleet.llm.requests();
        let messages = requests.last().expect("a request").messages();
        let results = messages.iter().filter(|message| message["role"] == "tool");
        results.map(|message| message["content"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

fn agent(skills: &[&str]) -> AgentSpec {
    serde_json::from_value(agent_with(skills)).unwrap()
}

fn load(more: Value) -> (&'static str, Value) {
    ("load_skill", with(json!({"name": "refunds"}), more))
}

const INSTRUCTIONS: &str = "# Skill refunds: SKILL.md\n# Refunds\nWithin 30 days.\n\nFiles of this skill, to load with \
                            `file`: references/rates.md";

#[tokio::test]
async fn skill_is_offered_and_loaded_once() {
    let it = Conversation::start().await;
    it.fleet.llm.answer_with(|request| match request.last_text().as_str() {
        "one" => reply_calls([
            load(json!({})),
            load(json!({"file": "SKILL.md"})),
            load(json!({"file": "references/rates.md"})),
        ]),
        "two" => reply_calls([load(json!({}))]),
        _ => reply_text("done"),
    });
    let _worker = it.fleet.worker();
    it.say("one").await;
    let requests = it.fleet.llm.requests();
    assert_eq!(requests[0].tools(), ["load_skill"]);
    let system = requests[0].messages()[0]["content"].as_str().unwrap().to_owned();
    assert!(system.starts_with("talk\n\nSkills have"), "{system}");
    assert!(system.ends_with("\n- refunds: Rules for refunds. Use it for money."), "{system}");
    assert!(!system.contains("30 days"), "only the description is in the prompt");
    let there = "`SKILL.md` of the skill `refunds` is already in this conversation.";
    let rates = "# Skill refunds: references/rates.md\n2 % a month";
    assert_eq!(it.results(), [INSTRUCTIONS, there, rates]);
    it.say("two").await;
    assert_eq!(it.results()[3..], [there], "a later message of the session");
    let last = it.fleet.llm.requests().pop().unwrap();
    assert_eq!(last.messages()[..requests.len() - 1], requests[1].messages()[..requests.len() - 1]);
}

#[tokio::test]
async fn failed_loads_are_told_and_do_not_count() {
    let it = Conversation::start().await;
    it.fleet.llm.answer_with(|request| match request.replies() {
        0 => reply_calls([load(json!({"file": "nope.md"})), ("load_skill", json!({"name": "other"}))]),
        1 => reply_calls([load(json!({"file": "nope.md"}))]),
        _ => reply_text("done"),
    });
    let _worker = it.fleet.worker();
    it.say("one").await;
    let results = it.results();
    let expected = "the skill `refunds` has no file `nope.md` (files: references/rates.md)";
    assert!(results[0].contains(expected) && results[2].contains(expected), "{results:?}");
    assert!(results[1].contains("refunds"), "the schema names the skills: {results:?}");
}

#[tokio::test]
async fn largest_texts_fit_one_result() {
    let it = Conversation::start().await;
    // The paths of the files exceed the list that follows the instructions.
    let most = |end: &str| format!("{}{end}", "x".repeat(SkillSpec::MAX_TEXT_BYTES - end.len()));
    let long = |n: usize| format!("{n}{}", "p".repeat(SkillSpec::MAX_PATH_BYTES - 2));
    let mut files: serde_json::Map<String, Value> = (0..30).map(|n| (long(n), json!(""))).collect();
    files.insert(long(7), json!(most("the end of the file")));
    let largest = spec(with(refunds(), json!({ "body": most("the end of the body"), "files": files })));
    assert_eq!(largest.problems(), []);
    assert!(it.fleet.store.put_skill(None, &largest).await.unwrap().created);
    it.fleet.store.put_shared_agent(&agent(&["refunds"])).await.unwrap();
    it.fleet.llm.answer_with(move |request| match request.replies() {
        0 => reply_calls([load(json!({})), load(json!({ "file": long(7) }))]),
        _ => reply_text("done"),
    });
    let _worker = it.fleet.worker();
    let id = it.fleet.submit_directly("a", json!({ "prompt": "load" })).await;
    assert_eq!(it.fleet.ended(id).await["status"], "FINISHED");
    let results = it.results();
    assert!(results[0].contains("the end of the body\n\nFiles of this skill"), "{}", results[0].len());
    assert!(results[1].ends_with("the end of the file"), "{}", results[1].len());
}

#[tokio::test]
async fn second_load_tells_that_a_text_was_cut() {
    let fleet = Fleet::start().await;
    let long = with(refunds(), json!({ "body": "Within 30 days. ".repeat(1_000) }));
    fleet.store.put_skill(None, &spec(long)).await.unwrap();
    let mut small = agent(&["refunds"]);
    small.limits.max_tool_result_bytes = 2_000;
    fleet.store.put_shared_agent(&small).await.unwrap();
    fleet.llm.answer_with(|request| match request.replies() {
        0 | 1 => reply_calls([load(json!({}))]),
        _ => reply_text("done"),
    });
    let _worker = fleet.worker();
    let id = fleet.submit_directly("a", json!({ "prompt": "load" })).await;
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    let expected = "The beginning of `SKILL.md` of the skill `refunds` is already in this conversation; the rest \
                    exceeds the agent's limit of 2000 bytes for one result.";
    assert!(fleet.llm.requests().pop().unwrap().last_text().contains(expected));
}

#[tokio::test]
async fn session_keeps_the_version_of_its_agent() {
    let it = Conversation::start().await;
    it.fleet.llm.answer_with(|request| match request.last_text().as_str() {
        "load" => reply_calls([load(json!({}))]),
        _ => reply_text("done"),
    });
    let _worker = it.fleet.worker();
    let changed = spec(with(refunds(), json!({"body": "Within 10 days.", "description": "New."})));
    assert!(it.fleet.store.put_skill(None, &changed).await.unwrap().created);
    assert!(it.fleet.store.put_shared_agent(&agent(&["refunds"])).await.unwrap().created);
    assert!(it.fleet.store.remove_skill_version(None, "refunds", 1).await.unwrap());
    it.say("load").await;
    assert_eq!(it.results(), [INSTRUCTIONS], "pinned, though it was removed");
    let id = it.fleet.submit_directly("a", json!({"prompt": "load"})).await;
    assert_eq!(it.fleet.ended(id).await["status"], "FINISHED");
    assert!(it.results()[0].contains("Within 10 days."), "{:?}", it.results());
    let other = it.fleet.llm.requests().pop().unwrap();
    assert!(other.messages()[0]["content"].as_str().unwrap().ends_with("- refunds: New."));
}

#[tokio::test]
async fn load_survives_the_death_of_its_worker() {
    for (point, visit) in
        [(Point::TurnAnswered, 1), (Point::BeforeTurn, 2), (Point::TurnAnswered, 2), (Point::TurnAnswered, 3)]
    {
        let fleet = quick_fleet().await;
        fleet.store.put_skill(None, &spec(refunds())).await.unwrap();
        fleet.store.put_shared_agent(&agent(&["refunds"])).await.unwrap();
        fleet.llm.answer_with(|request| match request.replies() {
            0 | 1 => reply_calls([load(json!({}))]),
            _ => reply_text("done"),
        });
        let holds = Holds::default();
        let id = fleet.submit_directly("a", json!({"prompt": "load"})).await;
        holds.plan(id, point, visit);
        let doomed = fleet.worker_with(|builder| builder.probe(holds.probe()));
        holds.all_held().await;
        doomed.kill().await;
        let _worker = fleet.worker();
        assert_eq!(fleet.ended(id).await["status"], "FINISHED", "{point:?} {visit}");
        let last = fleet.llm.requests().pop().unwrap();
        let results = last.messages().iter().filter(|message| message["role"] == "tool");
        let results: Vec<&str> = results.map(|message| message["content"].as_str().unwrap()).collect();
        let there = "`SKILL.md` of the skill `refunds` is already in this conversation.";
        assert_eq!(results, [INSTRUCTIONS, there], "{point:?} {visit}");
    }
}

#[tokio::test]
async fn skill_that_was_compressed_is_loaded_again() {
    let fleet = Fleet::start().await;
    let long = with(refunds(), json!({"body": format!("# Refunds\n{}", "Within 30 days. ".repeat(1_000))}));
    fleet.store.put_skill(None, &spec(long)).await.unwrap();
    let notes = with(refunds(), json!({"name": "notes", "body": "Nothing of note."}));
    fleet.store.put_skill(None, &spec(notes)).await.unwrap();
    let mut small = agent(&["refunds", "notes"]);
    small.limits.context_tokens = 3_500;
    fleet.store.put_shared_agent(&small).await.unwrap();
    fleet.llm.answer_with(|request| {
        if request.tools().is_empty() {
            return reply_text("they talked about refunds");
        }
        let holds = |text: &str| request.messages().iter().any(|message| message.to_string().contains(text));
        match (holds("# Skill refunds"), holds("they talked about refunds")) {
            (false, _) => reply_calls([load(json!({}))]),
            (true, false) => reply_calls([load(json!({"name": "notes"}))]),
            (true, true) => reply_text("done"),
        }
    });
    let _worker = fleet.worker();
    let id = fleet.submit_directly("a", json!({"prompt": "load"})).await;
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    assert!(fleet.event_kinds(id).await.contains(&"compressed".to_owned()));
    let last = fleet.llm.requests().pop().unwrap();
    assert!(last.messages().last().unwrap().to_string().contains("# Skill refunds: SKILL.md"));
}

#[tokio::test]
async fn example_agent_decides_by_its_skill() {
    let files = SpecFiles::read(&[Path::new(env!("CARGO_MANIFEST_DIR")).join("../agents")]).sound().unwrap();
    let fleet = Fleet::start().await;
    for (_, skill) in &files.skills {
        fleet.store.put_skill(None, skill).await.unwrap();
    }
    let (_, mut clerk) = files.agents.into_iter().find(|(_, agent)| agent.key == "expense-clerk").unwrap();
    clerk.model.provider = Some("scripted".into());
    fleet.store.put_shared_agent(&clerk).await.unwrap();
    let _worker = fleet.worker();
    for (text, decision) in [
        ("A hotel for 150 EUR", "approved"),
        ("A meal for 90 EUR", "needs_manager"),
        ("12 EUR, no receipt", "missing_receipt"),
    ] {
        let id = fleet.submit_directly("expense-clerk", json!({ "prompt": text })).await;
        let row = fleet.ended(id).await;
        assert_eq!(row["status"], "FINISHED", "{row}");
        assert!(row["output"].to_string().contains(decision), "{text}: {row}");
    }
}
