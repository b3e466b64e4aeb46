//! Reserves a model call's cost in the budget of the execution tree before the call, and settles it with the
//! call's step (core-rules 13).

use longhaul_domain::{CallTokens, ExecutionId, Price, WaitReason};
use longhaul_llm::{
    ModelError, ModelRequest, RequestFiles, ToolChoice, Usage,
    health::Route,
    platform::PLATFORM,
    prompt_bound,
    reply_limit::{reply_limit, unbounded_field},
};
use longhaul_queue::producer::WakeupPublisher;
use longhaul_sdk::{Failure, FailureClass, FailureCode, Interrupt, Step, StepError, Usd};
use longhaul_store::{
    StoreError,
    database::retry::patiently,
    executions::budgets::{CallPrice, Ledger, Reservation, Reserved, Settlement},
    fleet::lease_writer::LeaseWriter,
    history::journal::{Hash, StepUsage},
    tenants::scope::TenantScope,
};
use serde_json::{Value, json};

use super::{Agent, Journal, Writer, from_store};
use crate::{prepare::tool_list::Offer, ready_call::Waiting};

/// Reply tokens counted for rate limits if the agent sets no `max_output_tokens`.
pub(super) const REPLY_TOKENS: u64 = 4_096;
/// Failures that providers do not charge for: the model was not called, or had no time to answer.
const FREE_FAILURES: [FailureCode; 5] = [
    FailureCode::MODEL_UNREACHABLE,
    FailureCode::MODEL_RATE_LIMITED,
    FailureCode::MODEL_API_ERROR,
    FailureCode::MODEL_REQUEST_REFUSED,
    FailureCode::MODEL_QUOTA_EXHAUSTED,
];

/// The reply limit that a budget granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReplyLimit {
    pub(super) tokens: u32,
    /// True if the limit is below the agent's own.
    pub(super) is_lowered: bool,
}

/// Usage of a call, as far as it is known.
#[derive(Debug, Clone, Copy)]
pub(super) enum Took {
    /// The provider's count.
    Counted(Usage),
    /// The call failed in a way that no provider charges for.
    Nothing,
    /// The provider gave no count, or its reply was not received.
    Unknown,
}

impl Took {
    pub(super) fn by_failure(error: &ModelError) -> Self {
        let failure = error.to_failure();
        let is_free = failure.class == FailureClass::ContextLimit || FREE_FAILURES.contains(&failure.code);
        if is_free { Self::Nothing } else { Self::Unknown }
    }
}

impl Journal {
    /// Reserves the turn that sends the whole transcript. Returns `None` without a budget.
    ///
    /// # Errors
    /// As [`Writer::reserve`](super::Writer::reserve).
    pub(super) async fn reserve_turn(
        &mut self,
        agent: &Agent,
        route: usize,
        offer: Offer,
        files: &RequestFiles,
        key: &Hash,
    ) -> Step<Option<ReplyLimit>> {
        if !self.writer.scope.has_budget {
            return Ok(None);
        }
        let messages = self.transcript.messages.all().to_vec();
        let request = ModelRequest {
            tenant: self.writer.scope.tenant,
            model: &agent.routes[route].spec,
            messages: &messages,
            files,
            tools: agent.tool_list.shown(offer),
            tool_choice: ToolChoice::Auto,
            idempotency_key: &format!("{}-count", hex::encode(key)),
            traceparent: None,
            max_output_tokens: None,
            context_tokens: None,
            output_schema: agent.native_output_schema.as_ref(),
            cache: None,
        };
        let prompt_tokens = match self.transcript.messages.counted(route, offer) {
            Some((counted, since)) => {
                let since: u64 = since.iter().map(|message| prompt_bound::of_message(message, request.model)).sum();
                counted.saturating_add(since).saturating_add(prompt_bound::PER_REQUEST)
            }
            None => prompt_bound::of_request(&request, agent.tool_list.shown_bytes(offer).len()),
        };
        let least = match self.writer.cut_by_budget.contains(key) {
            true => u32::MAX,
            false => self.writer.deps.budget.least_reply_tokens,
        };
        self.writer.reserve(&agent.routes[route], key, request, prompt_tokens, least).await.map(Some)
    }
}

impl Writer {
    /// Reserves a call whose prompt takes at most `prompt_tokens` and whose reply limit may be lowered to `least`
    /// tokens. A resumed attempt gets the reservation of an earlier attempt again.
    ///
    /// # Errors
    /// An interrupt, also if the execution must wait for the budget; `budget_exhausted`, `price_unknown` or
    /// `cost_unbounded`.
    pub(super) async fn reserve(
        &mut self,
        route: &Route,
        key: &Hash,
        request: ModelRequest<'_>,
        prompt_tokens: u64,
        least: u32,
    ) -> Step<ReplyLimit> {
        if let Some(field) = unbounded_field(&route.spec) {
            let summary =
                format!("there is a budget, and with `extra.{field}` a call of the model has no limit to its cost");
            return Err(Failure::permanent(FailureCode::COST_UNBOUNDED, summary).into());
        }
        let wanted = reply_limit(&route.spec).map_err(|error| error.to_failure())?;
        let wanted = wanted.unwrap_or(self.deps.budget.reply_tokens);
        let step_key = self.step_key(key);
        // The call is repeated before its settlement was committed: the reservation stays open.
        self.pending.settlements.retain(|settlement| settlement.step_key != step_key);
        let price = self.price(route);
        let reservation = |prompt_tokens, least: u32, may_wait| Reservation {
            id: self.id,
            token: self.control.token,
            step_key,
            price: price.map(|price| CallPrice { prompt: price.most_for_prompt(prompt_tokens), reply: price.output }),
            prompt_tokens,
            reply_tokens: wanted,
            least_reply_tokens: least.min(wanted),
            may_wait,
        };
        // Counting takes time or a request: count only if the prompt's length in bytes leaves no room for a full
        // reply.
        let first = match route.model.counts_prompts(&route.spec) {
            true => reservation(prompt_tokens, wanted, false),
            false => reservation(prompt_tokens, least, true),
        };
        let mut reserved = self.lease.reserve(first).await.map_err(refused)?;
        if reserved == Reserved::Short {
            let counted = Box::pin(route.model.count_prompt(request)).await.unwrap_or(prompt_tokens);
            let closer = reservation(counted.min(prompt_tokens), least, true);
            reserved = self.lease.reserve(closer).await.map_err(refused)?;
        }
        match reserved {
            Reserved::Granted { reply_tokens } => {
                Ok(ReplyLimit { tokens: reply_tokens, is_lowered: reply_tokens < wanted })
            }
            Reserved::Waiting { wake_seq } => {
                self.park(Waiting { reason: WaitReason::Budget, until: None }, wake_seq);
                Err(Interrupt::Waiting.into())
            }
            Reserved::Cancelled => Err(Interrupt::Cancelled.into()),
            Reserved::Exhausted | Reserved::Short => {
                let summary = "the budget has no room for another model call";
                let ledger = patiently(self.deps.store.trouble(), || {
                    self.deps.store.read_budget(&TenantScope::Everybody, self.id)
                })
                .await
                .map_err(from_store)?;
                let failure = Failure::permanent(FailureCode::BUDGET_EXHAUSTED, summary);
                Err(failure.with_detail(ledger.map_or(Value::Null, |ledger| written(&ledger))).into())
            }
            Reserved::Unpriced => {
                let model = route.model.model_name(&route.spec);
                let summary = format!("the budget is in money, and no price is configured for the model `{model}`");
                Err(Failure::permanent(FailureCode::PRICE_UNKNOWN, summary).into())
            }
        }
    }

    /// Settles a reserved call in the next commit.
    pub(super) fn settle(&mut self, route: &Route, key: &Hash, took: Took) {
        if !self.scope.has_budget {
            return;
        }
        let counted =
            |cost, tokens| Settlement { step_key: self.step_key(key), cost, tokens, calls: 1, is_estimate: false };
        let settlement = match took {
            Took::Nothing => counted(Some(Usd::ZERO), 0),
            Took::Counted(usage @ Usage { input_tokens: Some(input), output_tokens: Some(output), .. }) => {
                counted(self.cost(route, usage), input.saturating_add(output))
            }
            Took::Counted(_) | Took::Unknown => Settlement { is_estimate: true, ..counted(None, 0) },
        };
        self.pending.settlements.push(settlement);
    }

    /// Price of the route's model. `None` for a model bound by a platform snapshot: its name is that provider's,
    /// and the same name in our price list may be another model.
    fn price(&self, route: &Route) -> Option<Price> {
        (route.model.provider() != PLATFORM).then(|| self.deps.prices.of(&route.spec)).flatten()
    }

    /// Cost of a call; `None` if the model has no price or the provider gave no counts.
    pub(super) fn cost(&self, route: &Route, usage: Usage) -> Option<Usd> {
        let (input, output) = usage.input_tokens.zip(usage.output_tokens)?;
        let (cached, cache_written) =
            (usage.cached_tokens.unwrap_or_default(), usage.cache_write_tokens.unwrap_or_default());
        Some(self.price(route)?.cost(CallTokens { input, cached, cache_written, output }))
    }

    pub(super) fn step_usage(&self, route: &Route, usage: Usage) -> StepUsage {
        let tokens = |count: Option<u64>| count.map(|count| i32::try_from(count).unwrap_or(i32::MAX));
        StepUsage {
            input_tokens: tokens(usage.input_tokens),
            output_tokens: tokens(usage.output_tokens),
            cached_tokens: tokens(usage.cached_tokens),
            cache_write_tokens: tokens(usage.cache_write_tokens),
            cost: self.cost(route, usage),
        }
    }
}

/// Returns unspent reservations to the budget of the tree `root` and wakes executions that wait for it. If this
/// fails, the sweep does it.
pub async fn fold_budget(publisher: &WakeupPublisher, writer: &LeaseWriter, root: ExecutionId) {
    match writer.fold_budget(root).await {
        Ok(woken) => publisher.runnable(&woken),
        Err(error) => tracing::debug!(error = %error, "a budget is left to the sweep"),
    }
}

/// The failure of an attempt whose reservation was refused.
fn refused(error: StoreError) -> StepError {
    if matches!(error, StoreError::NotFound(_)) {
        let summary = "the budget was deleted, with the session or project that it belonged to";
        return Failure::permanent(FailureCode::BUDGET_EXHAUSTED, summary).into();
    }
    from_store(error)
}

fn written(ledger: &Ledger) -> Value {
    json!({
        "root_id": ledger.root,
        "max": { "cost_usd": ledger.max_cost, "tokens": ledger.max_tokens, "model_calls": ledger.max_calls },
        "spent": { "cost_usd": ledger.spent.cost, "tokens": ledger.spent.tokens, "model_calls": ledger.spent.calls },
        "reserved":
            { "cost_usd": ledger.reserved.cost, "tokens": ledger.reserved.tokens,
                "model_calls": ledger.reserved.calls },
        "over_limit": {
            "cost_usd": ledger.over_limit.cost, "tokens": ledger.over_limit.tokens,
            "model_calls": ledger.over_limit.calls,
        },
        "uncosted_calls": ledger.uncosted_calls,
    })
}
