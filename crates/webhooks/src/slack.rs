//! Messages of Slack: blocks, and signatures of what Slack sends
//! ([verifying requests](https://docs.slack.dev/authentication/verifying-requests-from-slack)).

use chrono::{DateTime, Utc};
use hmac::{Hmac, KeyInit, Mac};
use longhaul_shared::visible::{line, visible};
use longhaul_store::{tenants::api_keys::Pepper, webhooks::EndpointOf};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::{
    message::Message,
    ticket::{Right, Ticket},
};

/// Longest text of a block, in UTF-16 units.
const BLOCK_UNITS: usize = 3_000;
/// Longest fact, in UTF-16 units.
const FACT_UNITS: usize = 300;
/// Most that a request's time may differ from ours, in seconds.
const TOLERANCE: u64 = 300;
const FENCES: (&str, &str) = ("```\n", "\n```");

/// The header `X-Slack-Signature` of a request with that header `X-Slack-Request-Timestamp`.
#[must_use]
pub fn sign(secret: &str, timestamp: i64, body: &[u8]) -> String {
    let code = mac(secret, timestamp, body).map(|mac| mac.finalize().into_bytes());
    format!("v0={}", hex::encode(code.unwrap_or_default()))
}

/// Returns true if Slack sent `body` within five minutes of `now`, under the signing secret of the app.
#[must_use]
pub fn verifies(secret: &str, timestamp: i64, signature: &str, body: &[u8], now: DateTime<Utc>) -> bool {
    let code = signature.strip_prefix("v0=").and_then(|text| hex::decode(text).ok());
    now.timestamp().abs_diff(timestamp) <= TOLERANCE
        && code.zip(mac(secret, timestamp, body)).is_some_and(|(code, mac)| mac.verify_slice(&code).is_ok())
}

/// Never `None`: HMAC takes keys of any length.
fn mac(secret: &str, timestamp: i64, body: &[u8]) -> Option<Hmac<Sha256>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).ok()?;
    mac.update(format!("v0:{timestamp}:").as_bytes());
    mac.update(body);
    Some(mac)
}

/// A message of the channel. An approval has buttons; if the arguments do not fit, it can be rejected alone, so that
/// no call is approved that the message does not show.
#[must_use]
pub fn post(message: &Message, pepper: &Pepper, channel: EndpointOf) -> Value {
    let (mut blocks, is_cut) = blocks(message);
    if let Some(request) = &message.asks {
        let button = |right: Right, name: &str, label: &str, style: &str| {
            json!({
                "type": "button", "action_id": name, "style": style, "text": { "type": "plain_text", "text": label },
                "value": Ticket::of(channel, request, right).sign(pepper),
            })
        };
        let approve = (!is_cut).then(|| button(Right::Approve, "approve", "Approve", "primary"));
        let reject = button(Right::Reject, "reject", "Reject", "danger");
        let buttons: Vec<Value> = approve.into_iter().chain([reject]).collect();
        blocks.push(json!({ "type": "actions", "block_id": "longhaul_decision", "elements": buttons }));
        if is_cut {
            let hint =
                format!("The call is too long for a message. To approve it: longhaul approvals show {}", request.id);
            blocks.push(context(&hint));
        }
    }
    json!({ "text": summary(message), "blocks": blocks })
}

/// The message that takes the place of an approval's when it can be decided no more: without buttons, and with what
/// became of it.
#[must_use]
pub fn decided(message: &Message, outcome: &str) -> Value {
    let (mut blocks, _) = blocks(message);
    blocks.push(context(outcome));
    json!({ "replace_original": true, "text": summary(message), "blocks": blocks })
}

/// An answer to the person who pressed a button, which the others do not see.
#[must_use]
pub fn refused(why: &str) -> Value {
    let text = escaped(&line(why), BLOCK_UNITS).0;
    json!({ "response_type": "ephemeral", "replace_original": false, "text": text })
}

/// The blocks of title, facts and body, and whether the body was cut.
fn blocks(message: &Message) -> (Vec<Value>, bool) {
    let facts = message.facts.iter().map(|(name, fact)| format!("\n{name}: {}", code(fact)));
    let mut blocks = vec![section(&format!("*{}*{}", message.title, facts.collect::<String>()))];
    let mut is_cut = false;
    if let Some(body) = &message.body {
        let (text, cut) = fenced(body);
        is_cut = cut;
        blocks.push(section(&text));
        if is_cut && message.asks.is_none() {
            blocks.push(context("The text was cut."));
        }
    }
    blocks.extend(message.note.as_deref().map(context));
    (blocks, is_cut)
}

/// The text of notifications.
fn summary(message: &Message) -> String {
    let first = message.facts.iter().take(2).map(|(name, fact)| format!("{name} {}", line(fact)));
    let text = [message.title.to_owned()].into_iter().chain(first).collect::<Vec<_>>().join(" · ");
    escaped(&text, FACT_UNITS).0
}

/// `text` is escaped. `verbatim`: addresses and names in it do not become links or mentions.
fn section(text: &str) -> Value {
    json!({ "type": "section", "text": { "type": "mrkdwn", "text": text, "verbatim": true } })
}

fn context(text: &str) -> Value {
    let text = escaped(&line(text), BLOCK_UNITS).0;
    json!({ "type": "context", "elements": [{ "type": "plain_text", "text": text, "emoji": false }] })
}

/// A text in code style, on one line.
fn code(text: &str) -> String {
    let text = line(text).replace('`', "'");
    format!("`{}`", escaped(&text, FACT_UNITS).0)
}

/// A text between fences, within the limit of a block, and whether it was cut.
fn fenced(text: &str) -> (String, bool) {
    let (open, close) = FENCES;
    // A fence within the text would end the block, so that no three ticks stay together.
    let text = text.replace("``", "` `");
    let (text, is_cut) = escaped(&text, BLOCK_UNITS - open.len() - close.len());
    (format!("{open}{text}{close}"), is_cut)
}

/// A text without hidden characters and Slack's control characters, of at most `max` UTF-16 units, and whether it was
/// cut.
fn escaped(text: &str, max: usize) -> (String, bool) {
    let (mut escaped, mut units) = (String::new(), 0);
    for c in visible(text) {
        let (entity, own) = match c {
            '&' => ("&amp;", 5),
            '<' => ("&lt;", 4),
            '>' => ("&gt;", 4),
            other => ("", other.len_utf16()),
        };
        units += own;
        if units > max {
            return (escaped, true);
        }
        if entity.is_empty() { escaped.push(c) } else { escaped.push_str(entity) }
    }
    (escaped, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(body: &str) -> Message {
        let facts = vec![("Tool", "pay` *x* <!channel>\n".to_owned())];
        Message { title: "Approval needed", facts, body: Some(body.to_owned()), note: None, asks: None }
    }

    /// The example of Slack's documentation.
    #[test]
    fn signature_is_that_of_slack() {
        let secret = "8f742231b10e8888abcd99yyyzzz85a5";
        let body = b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&\
channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2F\
hooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.\
803a0bc887a14d10d2c447fce8b6703c";
        let signature = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503";
        assert_eq!(sign(secret, 1_531_420_618, body), signature);
        let at = |seconds: i64| DateTime::from_timestamp(1_531_420_618 + seconds, 0).unwrap();
        let verified = |seconds, body: &[u8]| verifies(secret, 1_531_420_618, signature, body, at(seconds));
        assert!(verified(300, body) && verified(-300, body));
        assert!(!verified(301, body) && !verified(-301, body) && !verified(0, b"token=other"));
        assert!(!verifies("another secret", 1_531_420_618, signature, body, at(0)));
    }

    #[test]
    fn texts_of_models_are_escaped() {
        let sent = decided(&message("a ````` <!here> & <https://x|y>"), "approved by <@U1>").to_string();
        assert!(!sent.contains("<!") && !sent.contains("<http") && !sent.contains("<@"), "{sent}");
        assert!(sent.contains("Tool: `pay' *x* &lt;!channel&gt; `"), "{sent}");
        assert!(sent.contains("```\\na ` `` `` &lt;!here&gt; &amp; &lt;https://x|y&gt;\\n```"), "{sent}");
    }

    #[test]
    fn blocks_keep_to_slacks_limits() {
        for (text, is_cut) in [("x".repeat(2_992), false), ("x".repeat(2_993), true), ("&😀".repeat(1_500), true)] {
            let (blocks, cut) = blocks(&message(&text));
            assert_eq!(cut, is_cut, "{} bytes", text.len());
            let long = blocks.iter().filter_map(|block| block["text"]["text"].as_str());
            assert!(long.into_iter().all(|text| text.encode_utf16().count() <= BLOCK_UNITS));
        }
    }
}
