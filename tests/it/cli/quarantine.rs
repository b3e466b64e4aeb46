//! `longhaul quarantine`.

use longhaul_domain::ExecutionId;
use longhaul_sdk::DefinitionSpec;
use serde_json::json;

use super::{Shell, nobody};
use crate::support::{
    fleet::{Fleet, agent},
    leases::TestWorker,
};

async fn quarantined(fleet: &Fleet) -> ExecutionId {
    let id = fleet.submit("d", json!({"text": "x"})).await;
    for _ in 0..3 {
        let worker = TestWorker::of_build(&fleet.store, "broken").await;
        assert_eq!(worker.claim_one().await.id, id);
        worker.die().await;
        fleet.store.reap(10).await.unwrap();
    }
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn quarantine_is_listed_shown_and_released() {
    let mut fleet = Fleet::start().await;
    let shell = Shell::open(&mut fleet).await;
    fleet.apply(&agent("a"), &DefinitionSpec::new("d", "a")).await;
    assert_eq!(shell.done(&["quarantine"]).await, "nothing is in quarantine\n");
    let (first, second) = (quarantined(&fleet).await.to_string(), quarantined(&fleet).await.to_string());
    let listed = shell.done(&["quarantine", "list"]).await;
    assert!(listed.contains(&first) && listed.contains(&second) && listed.contains("d@1"), "{listed}");
    let shown = shell.done(&["quarantine", "show", &first]).await;
    assert!(shown.contains("build broken") && shown.contains("a worker of a build other than broken"), "{shown}");
    assert_eq!(shell.json(&["quarantine", "show", &first]).await["deaths"].as_array().unwrap().len(), 3);
    shell.refused(&["quarantine", "show", &nobody()], 5, &["not_found"]).await;
    shell.refused(&["quarantine", "release"], 2, &["<ID>"]).await;

    let retry = shell.done(&["quarantine", "release", &first]).await.trim().to_owned();
    assert_eq!(shell.json(&["get", &retry]).await["retry_of"], json!(first));
    shell.refused(&["quarantine", "release", &first], 6, &["not_releasable", &retry]).await;
    let waits = shell.done(&["quarantine", "show", &second]).await;
    assert!(waits.contains(&format!("the end of {retry}, which is tried")), "{waits}");
    assert_eq!(shell.json(&["quarantine", "release", &second, "--all"]).await["all"], json!(true));
}
