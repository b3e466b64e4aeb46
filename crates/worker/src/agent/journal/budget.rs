//! What a model call costs, and whether the tree's budget has room for it: reserved before it is made, settled with its step
//! (core-rules 13).

use longhaul_sdk::{Failure, FailureClass, FailureCode, Interrupt, Step, Usd};
use longhaul_shared::{
    domain::{ExecutionId, Price, WaitReason},
    store::{
        budgets::{Ledger, Reservation, Reserved, Settlement},
        journal::{Hash, StepUsage},
        tenants::Reach,
    },
};
use serde_json::{Value, json};

use super::{Journal, from_store};
use crate::{
    agent::admission::Waiting,
    llm::{ModelError, Usage, health::Route, platform::PLATFORM},
    patience::patiently,
};

/// The longest reply that is reserved for where an agent sets no `max_output_tokens`.
pub(super) const REPLY_TOKENS: u64 = 4_096;
/// Failures that providers do not charge for: the model was not asked, or had no time to answer.
const FREE_FAILURES: [FailureCode; 5] = [
    FailureCode::MODEL_UNREACHABLE,
    FailureCode::MODEL_RATE_LIMITED,
    FailureCode::MODEL_API_ERROR,
    FailureCode::MODEL_REQUEST_REFUSED,
    FailureCode::MODEL_QUOTA_EXHAUSTED,
];

/// What a call took, as far as anybody knows.
#[derive(Debug, Clone, Copy)]
pub(super) enum Took {
    /// What its provider counted.
    Counted(Usage),
    /// It was made, and no provider charges for what came of it.
    Nothing,
    /// Its provider said nothing, or nobody heard it.
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
    /// Reserves a model call that sends about `input_tokens`. A resumed attempt finds what an earlier one was granted.
    ///
    /// # Errors
    /// An interrupt, also when it has to wait for the budget; `budget_exhausted` or `price_unknown`.
    pub(super) async fn reserve(&mut self, route: &Route, key: &Hash, input_tokens: u64) -> Step<()> {
        if !self.place.has_budget {
            return Ok(());
        }
        let output_tokens = route.spec.max_output_tokens.map_or(REPLY_TOKENS, u64::from);
        let price = self.price(route);
        let reservation = Reservation {
            id: self.id,
            token: self.control.token,
            step_key: self.step_key(key),
            cost: price.map(|price| price.most(input_tokens, output_tokens)),
            tokens: input_tokens.saturating_add(output_tokens),
        };
        match self.writer.reserve(reservation).await.map_err(from_store)? {
            Reserved::Granted => Ok(()),
            Reserved::Waiting { wake_seq } => {
                self.park(Waiting { reason: WaitReason::Budget, until: None }, wake_seq);
                Err(Interrupt::Waiting.into())
            }
            Reserved::Cancelled => Err(Interrupt::Cancelled.into()),
            Reserved::Exhausted => {
                let summary = "the budget has no room for another model call";
                let ledger =
                    patiently(self.deps.store.trouble(), || self.deps.store.read_budget(&Reach::Everybody, self.id))
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

    /// Settles a reserved call with the next commit.
    pub(super) fn settle(&mut self, route: &Route, key: &Hash, took: Took) {
        if !self.place.has_budget {
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

    /// What the model of `route` costs. Of one that a platform's snapshot binds nobody here knows: its name is that provider's, and a
    /// price for it among ours would be another model's.
    fn price(&self, route: &Route) -> Option<Price> {
        (route.model.provider() != PLATFORM).then(|| self.deps.prices.of(&route.spec)).flatten()
    }

    /// What a call cost; `None` when its model has no price or its provider did not count.
    fn cost(&self, route: &Route, usage: Usage) -> Option<Usd> {
        let (input, output) = usage.input_tokens.zip(usage.output_tokens)?;
        let price = self.price(route)?;
        Some(price.cost(input, usage.cached_tokens.unwrap_or_default(), output))
    }

    pub(super) fn step_usage(&self, route: &Route, usage: Usage) -> StepUsage {
        let tokens = |count: Option<u64>| count.map(|count| i32::try_from(count).unwrap_or(i32::MAX));
        StepUsage {
            input_tokens: tokens(usage.input_tokens),
            output_tokens: tokens(usage.output_tokens),
            cached_tokens: tokens(usage.cached_tokens),
            cost: self.cost(route, usage),
        }
    }

    /// What was settled may have been less than was reserved: whoever waits for it is woken now. When this fails the sweep does it.
    pub(super) async fn fold_budget(&self) {
        fold_budget(&self.deps, &self.writer, self.place.root).await;
    }
}

/// See [`Journal::fold_budget`].
pub(crate) async fn fold_budget(
    deps: &crate::deps::Deps,
    writer: &longhaul_shared::store::outcomes::LeaseWriter,
    root: ExecutionId,
) {
    match writer.fold_budget(root).await {
        Ok(woken) => {
            for one in woken {
                deps.publisher.look([one.id.0]);
                crate::wake(&deps.publisher, &one.queue, one.id, Some(WaitReason::Worker));
            }
        }
        Err(error) => tracing::debug!(error = %error, "a budget is left to the sweep"),
    }
}

fn written(ledger: &Ledger) -> Value {
    json!({
        "root_id": ledger.root,
        "max": { "cost_usd": ledger.max_cost, "tokens": ledger.max_tokens, "model_calls": ledger.max_calls },
        "spent": { "cost_usd": ledger.spent.cost, "tokens": ledger.spent.tokens, "model_calls": ledger.spent.calls },
        "reserved":
            { "cost_usd": ledger.reserved.cost, "tokens": ledger.reserved.tokens, "model_calls": ledger.reserved.calls },
        "uncosted_calls": ledger.uncosted_calls,
    })
}
