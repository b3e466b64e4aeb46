//! Answers that stay small whatever was recorded.

use serde_json::{Value, json};

use super::{Held, Remote, done, key};
use crate::wires::Bench;

const MB: usize = 1024 * 1024;

/// A page of an execution's journal.
async fn page(worker: &Remote, held: &Held, after: &Value) -> Value {
    let path = format!("{}/executions/{}/journal?token={}&after={after}", worker.path, held.id, held.token);
    let answer = worker.caller.get(&path).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert!(answer.text.len() < 10 * MB, "{} bytes", answer.text.len());
    answer.body
}

/// Numbers of the steps of a claim's answer and of the pages after it.
async fn numbers(worker: &Remote, held: &Held) -> Vec<i64> {
    let mut page_of = held.claimed.clone();
    let mut numbers = Vec::new();
    loop {
        numbers.extend(page_of["steps"].as_array().unwrap().iter().map(|step| step["seq"].as_i64().unwrap()));
        if page_of["next_after"].is_null() {
            return numbers;
        }
        page_of = page(worker, held, &page_of["next_after"]).await;
    }
}

#[tokio::test]
async fn journals_of_a_claim_share_its_room() {
    let bench = Bench::start().await;
    let worker = Remote::start(&bench).await;
    for _ in 0..3 {
        worker.submit(json!({})).await;
    }
    let held = worker.claim(3, 10).await;
    assert_eq!(held.len(), 3);
    for one in &held {
        for n in 1..=5 {
            // Stored as a few bytes.
            worker.write(one, n.into(), json!([done(n.into(), n, json!("x".repeat(3 * MB)))])).await;
        }
        assert_eq!(worker.end(one, json!({ "type": "release" })).await["status"], "IN_PROGRESS");
    }
    let answer = worker.post("claim", &json!({ "max": 3, "wait_seconds": 10 })).await;
    assert!(answer.text.len() < 10 * MB, "{} bytes", answer.text.len());
    let again = super::held(&answer.body);
    assert_eq!(again.len(), 3);
    assert_eq!(again.last().unwrap().claimed["steps"], json!([]), "the first has used the room");
    for one in &again {
        assert_eq!(numbers(&worker, one).await, [1, 2, 3, 4, 5]);
    }
}

#[tokio::test]
async fn many_small_steps_are_read_in_pages() {
    let bench = Bench::start().await;
    let worker = Remote::start(&bench).await;
    worker.submit(json!({})).await;
    let held = worker.claim_one().await;
    for write in 0..3 {
        let steps: Vec<_> = (1..=400).map(|n| small(write * 400 + n)).collect();
        assert_eq!(worker.write(&held, write + 1, json!(steps)).await["wake_seq"], 0);
    }
    worker.end(&held, json!({ "type": "release" })).await;
    let again = worker.claim_one().await;
    assert_eq!(again.claimed["next_after"], 500);
    assert_eq!(numbers(&worker, &again).await, (1..=1_200).collect::<Vec<i64>>());
}

fn small(n: i32) -> Value {
    let key = format!("{n:064x}");
    json!({ "seq": n, "key": key, "name": "step", "state": "done", "result": n })
}

#[tokio::test]
async fn outputs_of_children_share_an_answer() {
    let bench = Bench::start().await;
    let worker = Remote::start(&bench).await;
    worker.submit(json!({})).await;
    let parent = worker.claim_one().await;
    let children: Vec<_> = (1..=3).map(|n| json!({ "key": key(n), "definition": "task", "input": {} })).collect();
    let started = worker.about(&parent, "children", json!({ "children": children })).await;
    let ids: Vec<Value> =
        started.body["children"].as_array().unwrap().iter().map(|child| child["id"].clone()).collect();
    for child in worker.claim(3, 10).await {
        worker.finish(&child, json!("y".repeat(7 * MB))).await;
    }
    let wait = async |of: &[&Value]| {
        let answer = worker.about(&parent, "children/wait", json!({ "key": key(9), "children": of })).await;
        assert_eq!(answer.status, 200, "{}", answer.text.len());
        assert!(answer.text.len() < 17 * MB, "{} bytes", answer.text.len());
        let of = |child: &Value| (child["output"].as_str().map(str::len), child["output_omitted"] == json!(true));
        answer.body["children"].as_array().unwrap().iter().map(of).collect::<Vec<_>>()
    };
    let there = (Some(7 * MB), false);
    let all = wait(&[&ids[2], &ids[2], &ids[0], &ids[1]]).await;
    assert_eq!(all, [there, there, (None, true)]);
    assert_eq!(wait(&[&ids[1]]).await, [there]);
}
