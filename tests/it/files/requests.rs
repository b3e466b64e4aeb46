//! Attached files in requests to models.

use futures::FutureExt;
use longhaul_agent::probe::{Point, Probe};
use longhaul_store::files::BODY_GRACE;
use longhaul_testkit::model::{Gate, reply_calls, reply_status, reply_text};
use serde_json::{Value, json};

use super::{PDF, PDF_BASE64, PNG, PNG_BASE64, Service};
use crate::{
    api::files::put_file,
    support::fleet::{Fleet, PATIENCE},
};

async fn both(service: &Service) -> Value {
    let picture = put_file(&service.api.acme, "p.png", "image/png", PNG).await;
    let paper = put_file(&service.api.acme, "q.pdf", "application/pdf", PDF).await;
    let note = put_file(&service.api.acme, "r.csv", "text/csv", b"1,2").await;
    json!([
        {"type": "text", "text": "compare"},
        {"type": "file", "file_id": picture},
        {"type": "file", "file_id": paper},
        {"type": "file", "file_id": note},
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn openai_model_gets_images_and_pdf() {
    let service = Service::start().await;
    let worker = service.fleet.worker_with(|builder| builder.tool(super::Draw).unwrap());
    service.fleet.llm.push(reply_text("equal"));
    let id = service.ask("sees", both(&service).await).await;
    assert_eq!(service.fleet.ended(id).await["status"], "FINISHED");
    let requests = service.fleet.llm.requests();
    let expected = json!([
        {"type": "text", "text": "compare"},
        {"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{PNG_BASE64}")}},
        {"type": "file", "file": {
            "filename": "q.pdf", "file_data": format!("data:application/pdf;base64,{PDF_BASE64}"),
        }},
        {"type": "text", "text": "[file r.csv, text/csv, 3 bytes]\n1,2\n[end of file r.csv]"},
    ]);
    assert_eq!(requests[0].messages()[1]["content"], expected);
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn anthropic_model_gets_images_and_pdf() {
    let mut fleet = Fleet::start().await;
    for (name, value) in [("KIND", "anthropic"), ("BASE_URL", &fleet.llm.url()), ("DEFAULT_MODEL", "m")] {
        fleet.set(&format!("LONGHAUL__LLM__PROVIDERS__CLAUDE__{name}"), value);
    }
    fleet.set("LONGHAUL__LLM__DEFAULT_PROVIDER", "claude");
    let service = Service::of(fleet).await;
    let worker = service.fleet.worker_with(|builder| builder.tool(super::Draw).unwrap());
    service.fleet.llm.push(reply_text("equal"));
    let id = service.ask("sees", both(&service).await).await;
    assert_eq!(service.fleet.ended(id).await["status"], "FINISHED");
    let requests = service.fleet.llm.requests();
    let source = |media_type: &str, data: &str| json!({"type": "base64", "media_type": media_type, "data": data});
    let expected = json!([
        {"type": "text", "text": "compare"},
        {"type": "image", "source": source("image/png", PNG_BASE64)},
        {"type": "document", "source": source("application/pdf", PDF_BASE64), "title": "q.pdf"},
        {
            "type": "text", "text": "[file r.csv, text/csv, 3 bytes]\n1,2\n[end of file r.csv]",
            "cache_control": {"type": "ephemeral"},
        },
    ]);
    assert_eq!(requests[0].messages()[0]["content"], expected);
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn model_without_images_gets_a_description() {
    let service = Service::start().await;
    let worker = service.fleet.worker_with(|builder| builder.tool(super::Draw).unwrap());
    service.fleet.llm.push(reply_text("words"));
    let id = service.ask("blind", both(&service).await).await;
    assert_eq!(service.fleet.ended(id).await["status"], "FINISHED");
    let expected = "compare\n[file p.png, image/png, 36 bytes]\n[file q.pdf, application/pdf, 30 bytes]\n\
                    [file r.csv, text/csv, 3 bytes]\n1,2\n[end of file r.csv]";
    let requests = service.fleet.llm.requests();
    let content = requests[0].messages()[1]["content"].as_str().unwrap().to_owned();
    assert_eq!(
        content,
        expected
            .replace("36 bytes", &format!("{} bytes", PNG.len()))
            .replace("30 bytes", &format!("{} bytes", PDF.len()))
    );
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resumed_turn_sends_the_same_bytes_without_the_upload() {
    let service = Service::start().await;
    let parts = both(&service).await;
    // The first reply fails, so that the second attempt asks the same turn again.
    service.fleet.llm.push(reply_status(500, "busy"));
    service.fleet.llm.push(reply_text("equal"));
    let id = service.ask("sees", parts.clone()).await;
    for part in parts.as_array().unwrap()[1..].iter() {
        let path = format!("/v1/files/{}", part["file_id"].as_str().unwrap());
        assert_eq!(service.api.acme.delete(&path).await.status, 204);
    }
    service.fleet.advance(BODY_GRACE + std::time::Duration::from_secs(1)).await;
    service.api.files.sweep().await.unwrap();
    let worker = service.fleet.worker_with(|builder| builder.tool(super::Draw).unwrap());
    let waits = |row: &Value| row["wait_reason"] == "retry_backoff";
    service.fleet.until(id, "it waits for its retry", waits).await;
    service.fleet.advance(std::time::Duration::from_secs(60)).await;
    assert_eq!(service.fleet.ended(id).await["status"], "FINISHED");
    let requests = service.fleet.llm.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0].raw, requests[1].raw);
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_worker_leaves_the_same_request_to_the_next() {
    let service = Service::start().await;
    let there = Gate::new();
    let reached = there.clone();
    let probe = Probe::armed(move |at, _| {
        let reached = reached.clone();
        async move {
            if at == Point::TurnRecorded {
                reached.pass().await;
            }
        }
        .boxed()
    });
    service.fleet.llm.push(reply_calls([("draw", json!({"note": "n"}))]));
    service.fleet.llm.push(reply_text("done"));
    let parts = both(&service).await;
    let with = |probe: Probe| service.fleet.worker_with(|builder| builder.tool(super::Draw).unwrap().probe(probe));
    let dies = with(probe);
    let id = service.ask("sees", parts).await;
    crate::support::wait::within("the first turn is recorded", PATIENCE, there.reached()).await;
    dies.kill().await;
    service.fleet.bury_workers().await;
    let worker = with(Probe::default());
    assert_eq!(service.fleet.ended(id).await["status"], "FINISHED");
    let requests = service.fleet.llm.requests();
    assert_eq!(requests.len(), 2, "no recorded call is repeated");
    assert_eq!(requests[0].messages()[1], requests[1].messages()[1]);
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_bytes_fail_the_execution_alone() {
    let mut fleet = Fleet::start().await;
    fleet.set("LONGHAUL__FILES__REQUEST_BYTES", "20971520");
    let service = Service::of(fleet).await;
    let worker = service.fleet.worker_with(|builder| builder.tool(super::Draw).unwrap());
    let mut parts = Vec::new();
    for byte in b"ab" {
        let bytes = vec![*byte; 11 * 1024 * 1024];
        let id = put_file(&service.api.acme, "t.txt", "text/plain", &bytes).await;
        parts.push(json!({"type": "file", "file_id": id}));
    }
    let row = service.fleet.ended(service.ask("sees", json!(parts)).await).await;
    assert_eq!((&row["status"], &row["failure_code"]), (&json!("FAILED"), &json!("files_too_large")));
    service.fleet.llm.push(reply_text("fine"));
    let id = service.ask("sees", both(&service).await).await;
    assert_eq!(service.fleet.ended(id).await["status"], "FINISHED");
    worker.drain().await;
}
