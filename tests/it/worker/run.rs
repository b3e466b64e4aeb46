//! The path of one execution, and the refusal of every role to start on an unsafe server.

use longhaul_api::ApiOptions;
use longhaul_cli::compose;
use longhaul_sdk::DefinitionSpec;
use longhaul_store::{Store, StoreOptions};
use longhaul_testkit::model::reply_text;
use longhaul_worker::{WorkerBuilder, WorkerError};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::support::{
    fleet::{Fleet, agent},
    wait::{SOON, within},
};

#[tokio::test]
async fn execution_goes_from_pending_to_finished() {
    let fleet = Fleet::start().await;
    fleet.apply(&agent("a"), &DefinitionSpec::new("d", "a")).await;
    fleet.llm.push(reply_text(r#"{"total": 7}"#));
    let id = fleet.submit("d", json!({"text": "seven"})).await;
    assert_eq!(fleet.row(id).await["status"], "PENDING");
    let worker = fleet.worker();
    let row = fleet.ended(id).await;
    assert_eq!(row["status"], "FINISHED");
    assert_eq!(row["output"], json!({"total": 7}));
    assert_eq!(fleet.event_kinds(id).await, ["submitted", "claimed", "turn", "finished"]);
    assert_eq!(fleet.steps(id).await, [("prompt".into(), "live".into()), ("turn".into(), "live".into())]);
    worker.drain().await;
}

#[tokio::test]
async fn no_role_starts_with_synchronous_commit_off() {
    let mut fleet = Fleet::start().await;
    fleet.set("LONGHAUL_API_KEY_PEPPER", "pepper of the test, thirty-two characters");
    let off =
        "do $$ begin execute format('alter database %I set synchronous_commit = off', current_database()); end $$";
    sqlx::query(off).execute(&fleet.db.pool).await.unwrap();

    let worker = WorkerBuilder::new(fleet.config()).build().unwrap();
    let refused = within("the worker's refusal", SOON, worker.run(CancellationToken::new())).await.unwrap_err();
    let WorkerError::UnsafeServer(error) = refused else { panic!("{refused}") };
    assert!(error.to_string().contains("synchronous_commit off"), "{error}");

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let store = Store::open(StoreOptions::new(&fleet.db.url)).unwrap();
    let config = fleet.config();
    let served = compose::serve_api(&config, store, ApiOptions::default(), listener, CancellationToken::new());
    let error = within("the API's refusal", SOON, Box::pin(served)).await.unwrap_err();
    assert!(error.to_string().contains("synchronous_commit off"), "{error}");
}
