//! The requests to its caller that a run has open, read from its events, and where an answer ends because of them.

use std::collections::BTreeMap;

use longhaul_domain::{HumanRequestId, RequestKind};
use longhaul_store::history::events::Event;

/// Open requests of a run and of what it started, as of an event.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// By the number of the event that told of them, which orders them.
    open: BTreeMap<i32, (HumanRequestId, RequestKind)>,
    is_parked: bool,
}

impl Waits {
    /// Takes the next event. Returns true if the run waits for its caller from this event on.
    pub(super) fn note(&mut self, event: &Event) -> bool {
        let waited = self.is_waiting();
        let id = text(event, "id").and_then(|id| id.parse::<HumanRequestId>().ok());
        match event.kind.as_str() {
            "parked" => {
                let reason = text(event, "wait_reason");
                self.is_parked = matches!(reason, Some("input" | "approval" | "children"));
            }
            "claimed" | "woken" => self.is_parked = false,
            _ => match (change(event), id) {
                (Some(Change::Opened(kind)), Some(id)) => {
                    self.open.insert(event.seq, (id, kind));
                }
                (Some(Change::Closed), Some(id)) => {
                    self.open.retain(|_, (open, _)| *open != id);
                    // A decision makes the run runnable; the next claim is its next event of that kind.
                    self.is_parked = false;
                }
                (Some(Change::Opened(_) | Change::Closed), None) | (None, _) => {}
            },
        }
        self.is_waiting() && !waited
    }

    /// The open requests, the oldest first.
    pub(super) fn open(&self) -> Vec<(HumanRequestId, RequestKind)> {
        self.open.values().copied().collect()
    }

    fn is_waiting(&self) -> bool {
        self.is_parked && !self.open.is_empty()
    }
}

/// The effect of an event on the open requests.
enum Change {
    Opened(RequestKind),
    Closed,
}

fn change(event: &Event) -> Option<Change> {
    Some(match event.kind.as_str() {
        "tool_call_pending" => Change::Opened(RequestKind::ToolCall),
        "question_asked" => Change::Opened(RequestKind::Question),
        "approval_requested" => Change::Opened(RequestKind::Approval),
        "child_request" => Change::Opened(match text(event, "request")? {
            "tool_call" => RequestKind::ToolCall,
            "question" => RequestKind::Question,
            "approval" => RequestKind::Approval,
            _ => return None,
        }),
        "tool_result_posted"
        | "tool_call_expired"
        | "question_answered"
        | "question_expired"
        | "approval_decided"
        | "approval_expired"
        | "child_request_decided" => Change::Closed,
        _ => return None,
    })
}

fn text<'a>(event: &'a Event, member: &str) -> Option<&'a str> {
    event.data.as_ref()?.get(member)?.as_str()
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use serde_json::{Value, json};

    use super::*;

    fn ends(events: &[(&str, Value)]) -> Vec<usize> {
        let mut waits = Waits::default();
        let event = |(at, (kind, data)): (usize, &(&str, Value))| Event {
            seq: i32::try_from(at).unwrap() + 1,
            at: DateTime::UNIX_EPOCH,
            kind: (*kind).into(),
            data: Some(data.clone()),
        };
        let noted = events.iter().enumerate().map(event).map(|event| waits.note(&event));
        noted.enumerate().filter(|(_, ends)| *ends).map(|(at, _)| at).collect()
    }

    #[test]
    fn answer_ends_where_an_open_request_parks_the_run() {
        let id = |n: u32| json!({ "id": format!("00000000-0000-0000-0000-{n:012}") });
        let parked = |reason: &str| json!({ "wait_reason": reason });
        let child = |n: u32| json!({ "id": format!("00000000-0000-0000-0000-{n:012}"), "request": "question" });
        // The call is told before the others have ended: the answer goes on until the run is parked.
        let told = [("tool_call_pending", id(1)), ("call", json!({})), ("parked", parked("input"))];
        assert_eq!(ends(&told), [2]);
        // A wait for anything else is none for the caller.
        assert_eq!(ends(&[("tool_call_pending", id(1)), ("parked", parked("retry_backoff"))]), [0; 0]);
        // One of two results: the run goes on and waits again for the other.
        let half = [
            ("tool_call_pending", id(1)),
            ("tool_call_pending", id(2)),
            ("parked", parked("input")),
            ("tool_result_posted", id(1)),
            ("claimed", json!({})),
            ("parked", parked("input")),
        ];
        assert_eq!(ends(&half), [2, 5]);
        // A question of a child that is asked while its parent waits for it.
        assert_eq!(ends(&[("parked", parked("children")), ("child_request", child(1))]), [1]);
    }
}
