//! The health of model endpoints over HTTP: for operators only, and without a secret.

use std::time::Duration;

use longhaul_domain::WaitReason;
use longhaul_sdk::failure::{FailureClass, FailureCode};
use longhaul_store::providers::breakers::{Asking, ModelKey};
use longhaul_store::providers::failures::{CallFailure, EndpointFailure, FailedCall, Pauses};
use longhaul_store::tenants::api_keys::Scope;
use serde_json::json;

use crate::support::api::{Answer, TestApi};
use crate::support::leases::{Conclusion, TestWorker};

#[tokio::test]
async fn operator_sees_and_resets_an_open_endpoint() {
    let api = TestApi::start().await;
    let operator = api.caller("ops", &[Scope::Admin]).await;
    assert_eq!(operator.get("/v1/providers/health").await.body, json!({"endpoints": []}));
    let id = api.submit().await;
    let worker = TestWorker::start(&api.store).await;
    let claimed = worker.claim_one().await;
    let asking = Asking { worker: worker.id, id, token: claimed.token, call: 1 };
    let key = ModelKey { provider: "openai".into(), model: "small".into(), key: "0123456789ab".into() };
    let failure = EndpointFailure {
        class: FailureClass::Transient,
        code: FailureCode::MODEL_QUOTA_EXHAUSTED,
        is_quota: true,
        stated: Some(Duration::from_secs(600)),
    };
    let pauses = Pauses { first: Duration::from_secs(10), longest: Duration::from_secs(120) };
    let hour = Duration::from_secs(3_600);
    let failed = CallFailure { asking, key: key.clone(), failure, patience: hour };
    let failed = api.store.provider_failed(&key, &[&failed], pauses).await.unwrap().remove(0).unwrap();
    let FailedCall::Wait { wake_seq, .. } = failed else { panic!("{failed:?}") };
    let park = Conclusion::Park { reason: WaitReason::ProviderDown, wait: Some(hour), wake_seq };
    worker.end(&claimed, park).await.unwrap();

    let shown = operator.get("/v1/providers/health").await;
    let endpoint = &shown.body["endpoints"][0];
    let parts = ["provider", "model", "key", "state", "cause", "failure_code", "is_stated", "waiting"];
    assert_eq!(
        json!(parts.map(|part| &endpoint[part])),
        json!(["openai", "small", "0123456789ab", "open", "quota", "model_quota_exhausted", true, 1]),
        "{}",
        shown.text
    );
    assert!(endpoint["until"].as_str() > endpoint["since"].as_str(), "{}", shown.text);

    let reset = async |body| operator.post("/v1/providers/health/reset", &body).await;
    for (body, path) in [
        (json!({}), "/provider"),
        (json!({"provider": 7}), "/provider"),
        (json!({"provider": "openai", "modle": "small"}), "/modle"),
    ] {
        let refused: Answer = reset(body).await;
        assert_eq!(refused.error(), (422, "invalid_request"));
        assert_eq!(refused.body["errors"][0]["path"], path, "{}", refused.text);
    }
    assert_eq!(reset(json!({"provider": "openai", "model": "large"})).await.error(), (404, "not_found"));
    let after = reset(json!({"provider": "openai"})).await;
    assert_eq!((after.status, &after.body["endpoints"][0]["state"]), (200, &json!("closed")), "{}", after.text);
    assert_eq!(api.woken("default").await.last(), Some(&id));
    assert_eq!(worker.claim_one().await.id, id);
}
