//! The transcript is stored once, in order, and precedes each message's own.

use longhaul_agent::probe::Point;
use longhaul_domain::SessionId;
use longhaul_sdk::ToolEffect;
use longhaul_testkit::model::{reply_calls, reply_text};
use serde_json::{Value, json};

use super::{Service, id_of};
use crate::{
    support::fleet::agent,
    worker::{
        journal::{Holds, quick_fleet},
        kit::{TestTool, agent_with},
    },
};

#[tokio::test]
async fn messages_continue_one_conversation() {
    let service = Service::start().await;
    service.fleet.llm.answer_with(|request| reply_text(&format!("reply {}", request.replies() + 1)));
    let _worker = service.fleet.worker();
    let session = service.begin(json!({})).await;
    for message in ["one", "two", "three"] {
        assert_eq!(service.say(&session, message).await["status"], "FINISHED");
    }
    let said = [
        "system: talk",
        "user: one",
        "assistant: reply 1",
        "user: two",
        "assistant: reply 2",
        "user: three",
        "assistant: reply 3",
    ];
    let requests = service.fleet.llm.requests();
    assert_eq!(requests.len(), 3);
    let last: Vec<&Value> = requests[2].messages().iter().map(|message| &message["role"]).collect();
    assert_eq!(last, ["system", "user", "assistant", "user", "assistant", "user"]);
    assert_eq!(requests[2].messages()[..4], requests[1].messages()[..4], "the prefix stays the same");
    let transcript = service.transcript(&session).await;
    assert_eq!(transcript, said);
    assert_eq!(service.api.acme.get(&session).await.body["stop_reason"], "end_turn");
    // Each execution journals its own messages only.
    let prompts = service
        .fleet
        .json("select jsonb_agg(array_length(appends, 1) order by execution_id) from steps where kind = 'prompt'")
        .await;
    assert_eq!(prompts, json!([2, 1, 1]));
}

#[tokio::test]
async fn killed_worker_resumes_with_the_same_request() {
    let service = Service::of(quick_fleet().await, agent("a")).await;
    service.fleet.llm.answer_with(|request| reply_text(&format!("reply {}", request.replies() + 1)));
    let session = service.begin(json!({})).await;
    let first = service.fleet.worker();
    service.say(&session, "one").await;
    first.drain().await;
    let holds = Holds::default();
    let answer = service.send(&session, "two").await;
    holds.plan(id_of(&answer), Point::TurnAnswered, 1);
    let doomed = service.fleet.worker_with(|builder| builder.probe(holds.probe()));
    holds.all_held().await;
    doomed.kill().await;
    let _worker = service.fleet.worker();
    assert_eq!(service.fleet.ended(id_of(&answer)).await["status"], "FINISHED");
    let requests = service.fleet.llm.requests();
    assert_eq!(requests.len(), 3, "the answer was not recorded, so it is asked again");
    assert_eq!(requests[1].messages(), requests[2].messages());
    assert_eq!(
        service.transcript(&session).await[1..],
        ["user: one", "assistant: reply 1", "user: two", "assistant: reply 2"]
    );
}

#[tokio::test]
async fn recorded_prompt_is_resumed_with_the_transcript() {
    let service = Service::of(quick_fleet().await, agent_with(&["look"])).await;
    service.fleet.llm.answer_with(|request| match request.last_text().as_str() {
        "two" => reply_calls([("look", json!({}))]),
        _ => reply_text(&format!("reply {}", request.replies() + 1)),
    });
    let look = || TestTool::new("look", ToolEffect::ReadOnly, |_, _, _| Ok("seen".into()));
    let session = service.begin(json!({})).await;
    let first = service.fleet.worker_with(|builder| builder.tool(look()).unwrap());
    service.say(&session, "one").await;
    first.drain().await;
    let holds = Holds::default();
    let answer = service.send(&session, "two").await;
    holds.plan(id_of(&answer), Point::TurnAnswered, 2);
    let doomed = service.fleet.worker_with(|builder| builder.tool(look()).unwrap().probe(holds.probe()));
    holds.all_held().await;
    doomed.kill().await;
    let _worker = service.fleet.worker_with(|builder| builder.tool(look()).unwrap());
    assert_eq!(service.fleet.ended(id_of(&answer)).await["status"], "FINISHED");
    let requests = service.fleet.llm.requests();
    assert_eq!(requests.len(), 4, "the recorded turn is not asked again");
    assert_eq!(requests[2].messages(), requests[3].messages());
    assert_eq!(requests[3].messages().len(), 6, "system, one, its reply, two, the call, its result");
}

#[tokio::test]
async fn pruned_executions_leave_their_messages() {
    let service = Service::start().await;
    service.fleet.llm.answer_with(|_| reply_text("kept"));
    let worker = service.fleet.worker();
    let session = service.begin(json!({})).await;
    service.say(&session, "first").await;
    worker.drain().await;
    let day = std::time::Duration::from_secs(24 * 3_600);
    service.fleet.advance(day * 60).await;
    // Its last activity is recent, so that it stays when its executions go.
    sqlx::query("update sessions set active_at = longhaul_now() - interval '1 hour'")
        .execute(&service.fleet.db.pool)
        .await
        .unwrap();
    let retention = longhaul_store::history::prune::Retention::new(day * 31).unwrap();
    assert_eq!(service.fleet.store.prune(retention).await.unwrap().executions, 1);
    assert_eq!(service.transcript(&session).await[1..], ["user: first", "assistant: kept"]);
    assert_eq!(service.status(&session).await, "ended", "idle for long");
}

#[tokio::test]
async fn failed_message_stays_and_the_next_is_answered() {
    let service = Service::start().await;
    service.fleet.llm.answer_with(|request| match request.last_said().as_str() {
        "bad" => longhaul_testkit::model::reply_status(400, "no"),
        _ => reply_text("better"),
    });
    let _worker = service.fleet.worker();
    let session = service.begin(json!({})).await;
    assert_eq!(service.say(&session, "bad").await["status"], "FAILED");
    assert_eq!(service.api.acme.get(&session).await.body["stop_reason"], "failed");
    assert_eq!(service.say(&session, "good").await["status"], "FINISHED");
    let transcript = service.transcript(&session).await;
    assert_eq!(transcript[1..], ["user: bad", "user: good", "assistant: better"]);
}

#[tokio::test]
async fn deleted_session_leaves_no_text() {
    let service = Service::start().await;
    service.fleet.llm.answer_with(|_| reply_text("hunter2 too"));
    let _worker = service.fleet.worker();
    let session = service.begin(json!({ "metadata": {"secret": "hunter2"} })).await;
    service.say(&session, "hunter2").await;
    service.say(&session, "again hunter2").await;
    assert!(crate::api::erase::places(&service.api).await.len() > 3);
    let answer = service.api.acme.delete(&session).await;
    assert_eq!(answer.status, 204, "{}", answer.text);
    assert_eq!(crate::api::erase::places(&service.api).await, Vec::<String>::new());
    assert_eq!(service.api.acme.get(&session).await.error(), (404, "not_found"));
    assert_eq!(service.api.caller("other", crate::support::api::EVERYDAY).await.get(&session).await.status, 404);
}

#[tokio::test]
async fn refused_first_call_stays_in_the_transcript() {
    let service = Service::start().await;
    service.fleet.llm.answer_with(|request| match request.replies() {
        0 => reply_calls([("unknown", json!({})), ("unknown", json!({}))]),
        replies => reply_text(&format!("reply {replies}")),
    });
    let _worker = service.fleet.worker();
    let session = service.begin(json!({})).await;
    service.say(&session, "one").await;
    service.say(&session, "two").await;
    let transcript = service.transcript(&session).await;
    let roles: Vec<&str> = transcript.iter().map(|line| line.split(':').next().unwrap()).collect();
    let expected = ["system", "user", "assistant", "tool", "tool", "assistant", "user", "assistant"];
    assert_eq!(roles, expected, "{transcript:?}");
}

#[tokio::test]
async fn branch_begins_with_the_transcript_before_it() {
    let service = Service::start().await;
    service.fleet.llm.answer_with(|request| reply_text(&format!("reply {}", request.replies() + 1)));
    let _worker = service.fleet.worker();
    let session = service.begin(json!({})).await;
    let mut executions = Vec::new();
    for message in ["one", "two", "three"] {
        let answer = service.send(&session, message).await;
        service.fleet.ended(id_of(&answer)).await;
        executions.push(id_of(&answer));
    }
    let id_in = |path: &str| path.rsplit('/').next().unwrap().parse::<SessionId>().unwrap();
    let (store, id) = (&service.fleet.store, id_in(&session));
    assert!(store.is_last_of_session(id, executions[2]).await.unwrap());
    assert!(!store.is_last_of_session(id, executions[1]).await.unwrap());
    let texts = async |execution| -> Vec<String> {
        let through = store.transcript_through(id, execution).await.unwrap().unwrap();
        through.iter().map(|bytes| serde_json::from_slice::<Value>(bytes).unwrap().to_string()).collect()
    };
    let (second, third) = (texts(executions[1]).await, texts(executions[2]).await);
    assert_eq!((second.len(), third.len()), (5, 7), "{third:?}");
    assert_eq!(second, third[..5]);
    let other = id_in(&service.begin(json!({})).await);
    assert_eq!(store.transcript_through(other, executions[1]).await.unwrap(), None);
}
