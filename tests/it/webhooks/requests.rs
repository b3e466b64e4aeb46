//! Requests about webhooks: what is refused, and rotation.

use super::*;

#[tokio::test]
async fn unfit_webhooks_are_refused_and_change_nothing() {
    let api = TestApi::start().await;
    let long = format!("https://example.org/{}", "x".repeat(2_048));
    for (body, path) in [
        (json!({"url": "ftp://example.org"}), "/url"),
        (json!({"url": "example.org"}), "/url"),
        (json!({"url": "https://user:secret@example.org"}), "/url"),
        (json!({"url": "http://127.0.0.1/"}), "/url"),
        (json!({"url": "http://0x7f000001/"}), "/url"),
        (json!({"url": "http://[::1]/"}), "/url"),
        (json!({"url": "http://169.254.169.254/latest"}), "/url"),
        (json!({"url": long}), "/url"),
        (json!({"url": "https://example.org", "types": ["execution.failed", "execution.ended"]}), "/types/1"),
        (json!({"url": "https://example.org", "types": ["webhook.test"]}), "/types/0"),
        (json!({"url": "https://example.org", "types": []}), "/types"),
        (json!({"url": "https://example.org", "description": "a\u{0}b"}), "/description"),
        (json!({"url": "https://example.org", "secret": "mine"}), "/secret"),
    ] {
        let answer = api.acme.post("/v1/webhooks", &body).await;
        assert_eq!((answer.status, answer.paths()), (422, vec![path]), "{body}: {}", answer.text);
        assert!(!answer.text.contains("user:secret"), "{}", answer.text);
    }
    assert_eq!(api.acme.get("/v1/webhooks").await.body["webhooks"], json!([]));
}

#[tokio::test]
async fn webhooks_of_a_tenant_are_bounded() {
    let api = TestApi::start_with(ApiOptions { max_webhooks: 2, ..ApiOptions::default() }).await;
    let body = json!({"url": "https://example.org"});
    let mut created = Vec::new();
    for _ in 0..2 {
        created.push(api.acme.post("/v1/webhooks", &body).await.body["id"].as_str().unwrap().to_owned());
    }
    assert_eq!(api.acme.post("/v1/webhooks", &body).await.error(), (409, "too_many_webhooks"));
    assert_eq!(api.acme.delete(&format!("/v1/webhooks/{}", created[0])).await.status, 204);
    assert_eq!(api.acme.delete(&format!("/v1/webhooks/{}", created[0])).await.error(), (404, "not_found"));
    assert_eq!(api.acme.post("/v1/webhooks", &body).await.status, 201);
    let listed = api.acme.get("/v1/webhooks").await;
    assert_eq!(listed.body["webhooks"].as_array().unwrap().len(), 2);
    assert!(!listed.text.contains("whsec_"), "{}", listed.text);
}

#[tokio::test]
async fn rotated_secret_signs_beside_the_one_before() {
    let (api, receiver) = (api().await, Receiver::start().await);
    let (webhook, first) = create(&api, &receiver.url, json!({})).await;
    let _delivery = api.deliver(OPTIONS);
    end_one(&api).await;
    let rotated = api.acme.post(&format!("{webhook}/rotate"), &json!({"overlap_seconds": 3_600})).await;
    let second = rotated.body["secret"].as_str().unwrap_or_else(|| panic!("{}", rotated.text));
    assert_ne!(first, second);
    assert!(rotated.body["old_secret_until"].is_string());
    until_all(&api, &webhook, "delivered").await;
    end_one(&api).await;
    until_all(&api, &webhook, "delivered").await;
    shift(&api, 3_601.0).await;
    end_one(&api).await;
    let received = receiver.until(3).await;
    let signatures = |one: &Received| one.header("webhook-signature").split(' ').count();
    assert_eq!((signatures(&received[1]), signatures(&received[2])), (2, 1));
    let too_long = api.acme.post(&format!("{webhook}/rotate"), &json!({"overlap_seconds": 604_801})).await;
    assert_eq!((too_long.status, too_long.paths()), (422, vec!["/overlap_seconds"]));
}
