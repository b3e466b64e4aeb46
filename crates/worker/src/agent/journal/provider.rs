//! Whether a model may be asked now: the way of an attempt to its provider's health and back.

use std::sync::Arc;

use longhaul_sdk::{Failure, FailureCode, Interrupt, Step, StepError};
use longhaul_shared::{domain::WaitReason, store::providers::Asking, telemetry::metrics};
use serde_json::json;

use super::{Agent, Journal, budget::REPLY_TOKENS, from_store};
use crate::{
    agent::admission::Waiting,
    llm::{
        ModelError,
        health::{Admission, AfterThrottle, Call, Wait, is_throttle},
    },
};

impl Journal {
    /// Asks for a model call that sends about `input_tokens`, before anything is reserved for it.
    ///
    /// # Errors
    /// An interrupt, also when it has to wait; `provider_down` or `model_quota_exhausted` when it has waited long enough.
    pub(super) async fn admit_call(&mut self, agent: &Agent, input_tokens: u64) -> Step<Arc<Call>> {
        // The conversation so far names the call, whichever model is asked: an answer makes it another one.
        let call = self.transcript.chain().first_chunk().map_or(0, |bytes| i64::from_be_bytes(*bytes));
        let asking = Asking { worker: self.writer.worker(), id: self.id, token: self.control.token, call };
        let output_tokens = agent.config.model.max_output_tokens.map_or(REPLY_TOKENS, u64::from);
        let tokens = input_tokens.saturating_add(output_tokens);
        match self.deps.health.admit(&agent.routes, asking, tokens).await.map_err(from_store)? {
            Admission::Call(call) => {
                if call.route > 0 {
                    let route = &agent.routes[call.route];
                    metrics::model_fallback(route.model.provider());
                    let instead = agent.routes[0].model.model_name(&agent.routes[0].spec);
                    let (provider, model) = (route.model.provider(), route.model.model_name(&route.spec));
                    self.event("fallback", json!({ "provider": provider, "model": model, "instead_of": instead }));
                }
                // A wait that was held may have outlasted the lease.
                self.control.may_launch().await?;
                Ok(call)
            }
            Admission::Wait(wait) => Err(self.wait_for_provider(agent, wait)),
            Admission::GiveUp { is_quota } => Err(give_up(agent, is_quota).into()),
        }
    }

    /// What a failed call means for the attempt: it parks, without a retry, when its provider is down.
    pub(super) async fn call_failed(
        &mut self,
        agent: &Agent,
        call: Option<&Call>,
        error: &ModelError,
        failure: Failure,
    ) -> StepError {
        let Some(call) = call else { return failure.into() };
        match self.deps.health.failed(call, error, agent.routes.len()).await {
            Some(wait) if agent.profile.instead_of_waiting().is_none() => self.wait_for_provider(agent, wait),
            // What became of this call says more than that others are held back from now on.
            Some(_) | None => failure.into(),
        }
    }

    /// Whether a failed call is made again without a retry: it was answered 429, and its endpoint said when it takes calls.
    pub(super) async fn is_asked_again(&self, agent: &Agent, call: Option<&Call>, error: &ModelError) -> bool {
        let Some(call) = call.filter(|_| is_throttle(error)) else { return false };
        let waits = agent.profile.instead_of_waiting().is_none();
        let routes = agent.routes.len();
        self.deps.health.throttled(call, error, routes, waits).await == AfterThrottle::Again
    }

    fn wait_for_provider(&mut self, agent: &Agent, wait: Wait) -> StepError {
        if let Some(failure) = agent.profile.instead_of_waiting() {
            return failure.into();
        }
        let Wait { reason, until, wake_seq, route } = wait;
        metrics::model_wait(reason);
        if reason == WaitReason::ProviderDown {
            let route = &agent.routes[route];
            let (provider, model) = (route.model.provider(), route.model.model_name(&route.spec));
            self.event("provider_down", json!({ "provider": provider, "model": model, "until": until }));
        }
        self.park(Waiting { reason, until: Some(until) }, wake_seq);
        Interrupt::Waiting.into()
    }
}

/// Why an execution that has waited as long as it may does not go on.
fn give_up(agent: &Agent, is_quota: bool) -> Failure {
    if let Some(failure) = agent.profile.instead_of_waiting() {
        return failure;
    }
    if is_quota {
        let summary = "the quota of the model provider stayed exhausted for longer than an execution may wait";
        return Failure::permanent(FailureCode::MODEL_QUOTA_EXHAUSTED, summary);
    }
    let summary = "the model provider was down, or at its limits, for longer than an execution may wait";
    Failure::permanent(FailureCode::PROVIDER_DOWN, summary)
}
