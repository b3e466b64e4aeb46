//! Admission of model calls by provider health, and reports of their failures.

use std::sync::Arc;

use longhaul_domain::WaitReason;
use longhaul_llm::{
    ModelError,
    health::{Admission, AfterThrottle, Call, Wait, is_throttle},
};
use longhaul_sdk::{Failure, FailureCode, Interrupt, Step, StepError};
use longhaul_store::{history::journal::Hash, providers::breakers::Asking};
use longhaul_telemetry::metrics;
use serde_json::json;

use super::{Agent, Writer, budget::REPLY_TOKENS, from_store};
use crate::ready_call::Waiting;

impl Writer {
    /// Requests admission for a model call of about `input_tokens` after the messages of `chain`, before a budget is
    /// reserved.
    ///
    /// # Errors
    /// An interrupt, also if the execution must wait; `provider_down` or `model_quota_exhausted` after the
    /// maximum wait.
    pub(super) async fn admit_call(&mut self, agent: &Agent, chain: &Hash, input_tokens: u64) -> Step<Arc<Call>> {
        // The transcript identifies the call on any route; a recorded reply changes the transcript.
        let call = chain.first_chunk().map_or(0, |bytes| i64::from_be_bytes(*bytes));
        let asking = Asking { worker: self.lease.worker(), id: self.id, token: self.control.token, call };
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
                Ok(call)
            }
            Admission::Wait(wait) => Err(self.wait_for_provider(agent, wait)),
            Admission::GiveUp { is_quota } => Err(give_up(agent, is_quota).into()),
        }
    }

    /// Reports a failed call. Returns the attempt's end: a park without a retry if the provider is down,
    /// otherwise the failure.
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
            // The failure of this call matters more than the wait it causes for later ones.
            Some(_) | None => failure.into(),
        }
    }

    /// Returns true if a failed call is repeated without a retry: the endpoint asks for fewer calls, and the execution
    /// may wait for it.
    pub(super) async fn is_asked_again(&self, agent: &Agent, call: Option<&Call>, error: &ModelError) -> bool {
        let Some(call) = call.filter(|_| is_throttle(error)) else { return false };
        let waits = agent.profile.instead_of_waiting().is_none();
        if !waits && matches!(error.root(), ModelError::Server { .. }) {
            // An overload that is not waited for counts for the breaker.
            return false;
        }
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

/// The failure of an execution that reached its maximum wait.
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
