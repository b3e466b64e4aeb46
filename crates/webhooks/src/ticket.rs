//! Tickets: signed texts in the buttons of messages and the links in e-mails.
//!
//! Invariants: a ticket names its tenant, its channel and the call as the person saw it; it grants what its right says
//! until the request expires. That it decides once is the request's rule, not the ticket's: a second decision finds the
//! request decided.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use chrono::{DateTime, Utc};
use longhaul_domain::{HumanRequestId, TenantId};
use longhaul_store::{
    history::journal::Hash, human_requests::HumanRequest, tenants::api_keys::Pepper, webhooks::EndpointOf,
};
use uuid::Uuid;

const PURPOSE: &str = "channel ticket";
const MAC_BYTES: usize = 32;

/// The decisions that a ticket permits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Right {
    Approve,
    Reject,
    /// Either, in the name of this person.
    Decide(String),
}

/// A right on one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    /// Channel in which it was sent.
    pub channel: EndpointOf,
    pub request: HumanRequestId,
    /// Hash of the call as the message showed it.
    pub hash: Hash,
    /// Seconds since 1970.
    pub expires_at: i64,
    pub right: Right,
}

impl Ticket {
    #[must_use]
    pub fn of(channel: EndpointOf, request: &HumanRequest, right: Right) -> Self {
        let expires_at = request.expires_at.timestamp();
        Self { channel, request: request.id, hash: request.hash, expires_at, right }
    }

    /// The ticket as text of letters, digits, `-` and `_`.
    #[must_use]
    pub fn sign(&self, pepper: &Pepper) -> String {
        let right = match &self.right {
            Right::Approve => "approve",
            Right::Reject => "reject",
            Right::Decide(person) => &format!("decide:{person}"),
        };
        let ids = [self.channel.tenant.0, self.channel.id, self.request.0].map(Uuid::into_bytes).concat();
        let content = [&ids, &self.hash[..], &self.expires_at.to_be_bytes(), right.as_bytes()].concat();
        URL_SAFE_NO_PAD.encode([pepper.mac(PURPOSE, &[&content]), content].concat())
    }

    /// Reads a ticket; `None` if it is not one of ours.
    #[must_use]
    pub fn read(text: &str, pepper: &Pepper) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (code, content) = bytes.split_at_checked(MAC_BYTES)?;
        if pepper.verifies(PURPOSE, &[content], code) { Self::parse(content) } else { None }
    }

    fn parse(content: &[u8]) -> Option<Self> {
        let (tenant, content) = content.split_first_chunk()?;
        let (id, content) = content.split_first_chunk()?;
        let (request, content) = content.split_first_chunk()?;
        let (hash, content) = content.split_first_chunk()?;
        let (expires_at, right) = content.split_first_chunk()?;
        let right = match std::str::from_utf8(right).ok()? {
            "approve" => Right::Approve,
            "reject" => Right::Reject,
            other => Right::Decide(other.strip_prefix("decide:")?.to_owned()),
        };
        Some(Self {
            channel: EndpointOf { tenant: TenantId(Uuid::from_bytes(*tenant)), id: Uuid::from_bytes(*id) },
            request: HumanRequestId(Uuid::from_bytes(*request)),
            hash: *hash,
            expires_at: i64::from_be_bytes(*expires_at),
            right,
        })
    }

    #[must_use]
    pub fn is_over(&self, now: DateTime<Utc>) -> bool {
        now.timestamp() >= self.expires_at
    }
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;

    use super::*;

    fn pepper(text: &str) -> Pepper {
        Pepper::from(SecretString::from(text))
    }

    fn ticket(right: Right) -> Ticket {
        let channel = EndpointOf { tenant: TenantId(Uuid::new_v4()), id: Uuid::new_v4() };
        Ticket { channel, request: HumanRequestId(Uuid::new_v4()), hash: [7; 32], expires_at: 100, right }
    }

    #[test]
    fn signed_ticket_is_read_as_it_was() {
        let at = |seconds| DateTime::from_timestamp(seconds, 0).unwrap();
        for right in [Right::Approve, Right::Reject, Right::Decide("a@example.org".into())] {
            let ticket = ticket(right);
            let text = ticket.sign(&pepper("one"));
            // Values of Slack's buttons have at most 2,000 characters.
            assert!(text.len() < 300, "{text}");
            assert_eq!(Ticket::read(&text, &pepper("one")), Some(ticket.clone()));
            assert_eq!(Ticket::read(&text, &pepper("another")), None);
            assert!(!ticket.is_over(at(99)) && ticket.is_over(at(100)));
        }
    }

    #[test]
    fn changed_ticket_is_refused() {
        let text = ticket(Right::Reject).sign(&pepper("one"));
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(Ticket::read(&changed, &pepper("one")), None, "{changed}");
        }
        assert_eq!(Ticket::read("", &pepper("one")), None);
    }
}
