//! One attempt to deliver.

use std::time::Duration;

use chrono::SecondsFormat;
use longhaul_guards::guarded_client::GuardedClient;
use longhaul_shared::clock::{Clock, SystemClock};
use longhaul_store::webhooks::{Due, Outcome, Settled};
use reqwest::{RequestBuilder, StatusCode, header::CONTENT_TYPE};
use serde_json::{Value, json};
use tokio::time::timeout;
use url::Url;

use crate::signature::sign;

/// Sends one delivery, signed with `secrets`, and judges the answer. Its body is not read.
pub(crate) async fn attempt(
    client: &GuardedClient,
    url: &str,
    secrets: &[Vec<u8>],
    due: &Due,
    limit: Duration,
) -> Settled {
    let url = match Url::parse(url) {
        Ok(url) => url,
        Err(error) => return settled(due, Outcome::Away, Some(format!("its address is not a URL: {error}"))),
    };
    let (id, now, body) = (due.id.to_string(), SystemClock::new().now().timestamp(), body(due));
    let request = client
        .post(url)
        .header(CONTENT_TYPE, "application/json")
        .header("webhook-id", &id)
        .header("webhook-timestamp", now)
        .header("webhook-signature", sign(secrets, &id, now, &body))
        .body(body);
    send(client, request, due, limit).await
}

/// Sends a message to an incoming webhook, and judges the answer. Its body is not read.
pub(crate) async fn post(client: &GuardedClient, url: &str, message: &Value, due: &Due, limit: Duration) -> Settled {
    match Url::parse(url) {
        Ok(url) => send(client, client.post(url).json(message), due, limit).await,
        Err(error) => settled(due, Outcome::Away, Some(format!("its address is not a URL: {error}"))),
    }
}

pub(crate) fn settled(due: &Due, outcome: Outcome, error: Option<String>) -> Settled {
    Settled { delivery: due.id, outcome, status: None, error }
}

async fn send(client: &GuardedClient, request: RequestBuilder, due: &Due, limit: Duration) -> Settled {
    match timeout(limit, client.send(request)).await {
        Ok(Ok(response)) => {
            let status = response.status();
            let outcome = judge(status);
            let error = (outcome != Outcome::Delivered).then(|| format!("it answered {status}"));
            Settled { status: Some(status.as_u16()), ..settled(due, outcome, error) }
        }
        Ok(Err(error)) => settled(due, Outcome::Away, Some(error)),
        Err(_) => settled(due, Outcome::Away, Some(format!("it did not answer within {} s", limit.as_secs_f64()))),
    }
}

/// A thin event: the receiver asks the API for the rest.
fn body(due: &Due) -> String {
    let mut data = json!({});
    if let Some(execution) = due.execution {
        data["execution_id"] = execution.to_string().into();
    }
    if let Some(request) = due.request {
        data["request_id"] = request.to_string().into();
    }
    let timestamp = due.occurred_at.to_rfc3339_opts(SecondsFormat::Millis, true);
    json!({ "type": due.event, "timestamp": timestamp, "data": data }).to_string()
}

fn judge(status: StatusCode) -> Outcome {
    match status.as_u16() {
        200..=299 => Outcome::Delivered,
        410 => Outcome::Gone,
        408 | 425 | 429 | 500.. => Outcome::Away,
        _ => Outcome::Refused,
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use longhaul_domain::ExecutionId;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn event_has_type_ids_and_time_alone() {
        let due = Due {
            id: Uuid::nil(),
            event: "approval.requested".into(),
            execution: Some(ExecutionId(Uuid::nil())),
            request: Some(Uuid::max()),
            occurred_at: DateTime::UNIX_EPOCH,
        };
        let sent: Value = serde_json::from_str(&body(&due)).unwrap();
        let expected = json!({
            "type": "approval.requested",
            "timestamp": "1970-01-01T00:00:00.000Z",
            "data": {
                "execution_id": "00000000-0000-0000-0000-000000000000",
                "request_id": "ffffffff-ffff-ffff-ffff-ffffffffffff",
            },
        });
        assert_eq!(sent, expected);
    }

    #[test]
    fn answers_are_told_apart() {
        let judged = |status| judge(StatusCode::from_u16(status).unwrap());
        assert_eq!([200, 204].map(judged), [Outcome::Delivered; 2]);
        assert_eq!([301, 400, 401, 404, 422].map(judged), [Outcome::Refused; 5]);
        assert_eq!([408, 429, 500, 503].map(judged), [Outcome::Away; 4]);
        assert_eq!(judged(410), Outcome::Gone);
    }
}
