//! Approval and input requests of an attempt.
//!
//! Nothing is cached: the attempt reads a request again after the wake counter that a park would carry, otherwise
//! a decision in between would not wake it (core-rules 3).

use std::time::Duration;

use longhaul_domain::{RequestKind, cut};
use longhaul_sdk::Step;
use longhaul_store::{
    database::retry::patiently,
    history::journal::Hash,
    human_requests::{HumanRequest, NewHumanRequest},
};
use serde_json::Value;

use super::{Writer, corrupt, from_store};
use crate::{probe::Point, ready_call::ReadyCall};

/// Maximum bytes of the text shown first.
const MAX_SHOWN: usize = 8_192;

/// A request for a person, about a call.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub kind: RequestKind,
    /// Number of times the call was replaced before.
    pub(crate) round: i32,
    pub shown: String,
    /// JSON pointers to arguments hidden from people.
    pub(crate) redact: Vec<String>,
    /// JSON Schema of edited arguments, or of the answer.
    pub(crate) schema: Option<Value>,
    /// The policy rule that requires the request.
    pub policy: Option<String>,
    pub(crate) allow_self: bool,
    pub(crate) expires_in: Duration,
}

impl Writer {
    /// Reads the requests of a call, with the decisions made so far.
    pub(crate) async fn requests_of_call(&self, kind: RequestKind, key: &Hash) -> Step<Vec<HumanRequest>> {
        let store = &self.deps.store;
        let read = async || {
            let mut found =
                patiently(store.trouble(), || store.requests_of_call(self.id, key)).await.map_err(from_store)?;
            found.retain(|request| request.kind == kind);
            Step::Ok(found)
        };
        let found = read().await?;
        if !found.iter().any(HumanRequest::is_late) {
            return Ok(found);
        }
        // The sweep has not expired it yet; a decision being written at this moment still counts.
        patiently(store.trouble(), || store.expire_requests(i64::from(u16::MAX), Some(self.id)))
            .await
            .map_err(from_store)?;
        read().await
    }

    /// Creates the request for a call, at most once per call and round, and returns it with the decision made so
    /// far.
    pub(crate) async fn put_before_people(&mut self, call: &ReadyCall, wanted: Wanted) -> Step<HumanRequest> {
        // A resume must find the same call when the decision comes: commit its turn first.
        self.flush().await?;
        let Wanted { kind, round, shown, redact, schema, policy, allow_self, expires_in } = wanted;
        let request = NewHumanRequest {
            execution_id: self.id,
            token: self.control.token,
            kind,
            call_key: call.key,
            call_id: call.written.id.clone(),
            round,
            tool: call.tool.clone(),
            arguments: serde_json::to_vec(&call.arguments).map_err(|error| corrupt(&error))?,
            shown: cut(&shown, MAX_SHOWN).into_owned(),
            redact,
            schema,
            policy,
            allow_self,
            expires_in,
        };
        let request = self.lease.request(request).await.map_err(from_store)?;
        self.deps.publisher.look([self.id]);
        self.at(Point::PutBeforePeople).await;
        Ok(request)
    }
}
