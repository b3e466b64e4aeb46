//! What an execution wants of people, as its attempt asks for it and hears of it.
//!
//! Nothing of it is remembered here: what an attempt would act on is read each time, after the wake counter that a park would
//! carry, or a decision in between would be slept through (core-rules 3).

use std::time::Duration;

use longhaul_sdk::Step;
use longhaul_shared::{
    domain::RequestKind,
    store::{
        human_requests::{HumanRequest, NewHumanRequest},
        journal::Hash,
    },
};
use serde_json::Value;

use super::{Journal, corrupt, from_store};
use crate::{agent::admission::ReadyCall, patience::patiently, probe::Point, tools::cut};

/// Bytes of what people are shown first.
const MAX_SHOWN: usize = 8_192;

/// What is wanted of people for a call.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) kind: RequestKind,
    /// How often the call was replaced before.
    pub(crate) round: i32,
    pub(crate) shown: String,
    /// Pointers to arguments that people are not shown.
    pub(crate) redact: Vec<String>,
    /// What edited arguments, or the answer, must satisfy.
    pub(crate) schema: Option<Value>,
    /// The rule that asks.
    pub(crate) policy: Option<String>,
    pub(crate) allow_self: bool,
    pub(crate) expires_in: Duration,
}

impl Journal {
    /// What people were asked about a call, with what they said by now.
    ///
    /// # Errors
    /// An interrupt, or a failure of the store.
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
        // The sweep was not there yet; a decision that is just being written counts all the same.
        patiently(store.trouble(), || store.expire_requests(i64::from(u16::MAX), Some(self.id)))
            .await
            .map_err(from_store)?;
        read().await
    }

    /// Puts a call before people, once however often it is asked, and gives what they said by now.
    ///
    /// # Errors
    /// An interrupt, or a failure of the store.
    pub(crate) async fn put_before_people(&mut self, call: &ReadyCall, wanted: Wanted) -> Step<HumanRequest> {
        // The call must be the same one when its answer comes: the turn that holds it is committed first.
        self.flush().await?;
        let Wanted { kind, round, shown, redact, schema, policy, allow_self, expires_in } = wanted;
        let request = NewHumanRequest {
            execution_id: self.id,
            token: self.control.token,
            kind,
            call_key: call.key,
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
        let request = self.writer.request(request).await.map_err(from_store)?;
        self.deps.publisher.look([self.id.0]);
        self.at(Point::PutBeforePeople).await;
        Ok(request)
    }
}
