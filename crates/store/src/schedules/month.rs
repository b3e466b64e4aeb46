//! The budget of a calendar month: a run starts with a budget that fits what is left, and what it spent is charged when
//! it has ended. Both happen under the lock of the schedule, and its runs never overlap, so the sum never exceeds the
//! caps.

use chrono::{DateTime, Datelike, NaiveDate, Utc};
use longhaul_domain::{
    ExecutionId, ScheduleId,
    schedule::{MonthlyBudget, Timing},
};
use longhaul_sdk::{
    Usd,
    spec::{BudgetSpec, OnExhausted},
};
use sqlx::PgConnection;

use crate::{Store, StoreError, executions::budgets::Amounts};

/// Amounts of a calendar month.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MonthSpent {
    /// Charged by runs that have ended.
    pub spent: Amounts,
    /// Reserved by the run under way.
    pub reserved: Amounts,
}

/// The first day of the month of an instant, in the zone of the schedule.
pub(super) fn month_of(timing: &Timing, at: DateTime<Utc>) -> NaiveDate {
    let day = at.with_timezone(&timing.zone()).date_naive();
    day.with_day(1).unwrap_or(day)
}

/// The budget of a run, which is its own within what the month has left after `spent`; `None` if that does not fit. In
/// a dimension without a cap of the run's own it may take all that is left.
pub(super) fn run_budget(caps: &MonthlyBudget, spent: &Amounts, own: Option<&BudgetSpec>) -> Option<BudgetSpec> {
    let own = own.cloned().unwrap_or_default();
    let cost = caps.max_cost_usd.map(|cap| cap.nanos() - spent.cost.nanos());
    let tokens = caps.max_tokens.map(|cap| i64::from(cap) - spent.tokens);
    let calls = caps.max_model_calls.map(|cap| i64::from(cap) - spent.calls);
    let fit = |rest: Option<i64>, own: Option<i64>| match (rest, own) {
        (Some(rest), Some(own)) if own > rest => Err(()),
        (Some(rest), None) if rest <= 0 => Err(()),
        (rest, own) => Ok(own.or(rest)),
    };
    let narrow = |amount: Option<i64>| amount.map(|amount| u32::try_from(amount).unwrap_or(u32::MAX));
    Some(BudgetSpec {
        max_cost_usd: fit(cost, own.max_cost_usd.map(Usd::nanos)).ok()?.map(Usd::from_nanos),
        max_tokens: narrow(fit(tokens, own.max_tokens.map(i64::from)).ok()?),
        max_model_calls: narrow(fit(calls, own.max_model_calls.map(i64::from)).ok()?),
        // A raise would exceed the month's reservation, so there is nothing to wait for.
        on_exhausted: OnExhausted::Fail,
    })
}

/// The part of a run's budget that the month has a cap for.
pub(super) fn reservation(caps: &MonthlyBudget, run: &BudgetSpec) -> Amounts {
    Amounts {
        cost: caps.max_cost_usd.and(run.max_cost_usd).unwrap_or_default(),
        tokens: caps.max_tokens.and(run.max_tokens).map_or(0, i64::from),
        calls: caps.max_model_calls.and(run.max_model_calls).map_or(0, i64::from),
    }
}

/// What the runs of a month have spent that have ended. The caller has locked the schedule, or only shows it.
pub(super) async fn read_month(
    connection: &mut PgConnection,
    schedule: ScheduleId,
    month: NaiveDate,
) -> Result<Amounts, StoreError> {
    let row = sqlx::query!(
        "select spent_cost, spent_tokens, spent_calls from schedule_months where schedule_id = $1 and month = $2",
        schedule.0,
        month,
    )
    .fetch_optional(connection)
    .await?;
    Ok(row.map_or_else(Amounts::default, |row| Amounts {
        cost: Usd::from_nanos(row.spent_cost),
        tokens: row.spent_tokens,
        calls: row.spent_calls,
    }))
}

impl Store {
    /// True if the execution is a scheduled run whose budget is taken from its schedule's monthly budget.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn reserves_from_month(&self, run: ExecutionId) -> Result<bool, StoreError> {
        let found = sqlx::query_scalar!(
            r#"
            select exists (
                select from schedule_firings where execution_id = $1 and month is not null
            ) as "found!"
            "#,
            run.0,
        );
        Ok(found.fetch_one(&self.pool).await?)
    }

    /// Amounts of the current month of a schedule.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn schedule_month(&self, schedule: &super::Schedule) -> Result<(NaiveDate, MonthSpent), StoreError> {
        let month = month_of(&schedule.timing, self.now().await?);
        let mut connection = self.pool.acquire().await?;
        let spent = read_month(&mut connection, schedule.id, month).await?;
        let reserved = sqlx::query!(
            r#"
            select reserved_cost, reserved_tokens, reserved_calls from schedule_firings
            where schedule_id = $1 and state in ('running', 'ended') and month = $2
            "#,
            schedule.id.0,
            month,
        )
        .fetch_optional(&mut *connection)
        .await?;
        let reserved = reserved.map_or_else(Amounts::default, |row| Amounts {
            cost: Usd::from_nanos(row.reserved_cost),
            tokens: row.reserved_tokens,
            calls: row.reserved_calls,
        });
        Ok((month, MonthSpent { spent, reserved }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(tokens: i64) -> Amounts {
        Amounts { tokens, ..Amounts::default() }
    }

    #[test]
    fn runs_budget_fits_what_is_left() {
        let caps = MonthlyBudget { max_cost_usd: None, max_tokens: Some(1_000), max_model_calls: None };
        let own = BudgetSpec { max_tokens: Some(300), max_model_calls: Some(9), ..BudgetSpec::default() };
        let run = run_budget(&caps, &spent(700), Some(&own)).unwrap();
        assert_eq!((run.max_tokens, run.max_model_calls), (Some(300), Some(9)));
        assert_eq!(reservation(&caps, &run), Amounts { tokens: 300, ..Amounts::default() });
        assert_eq!(run_budget(&caps, &spent(701), Some(&own)), None);
    }

    #[test]
    fn run_without_budget_takes_what_is_left() {
        let caps = MonthlyBudget { max_cost_usd: "2".parse().ok(), max_tokens: Some(1_000), max_model_calls: None };
        let run = run_budget(&caps, &spent(999), None).unwrap();
        assert_eq!((run.max_tokens, run.max_cost_usd), (Some(1), "2".parse().ok()));
        assert_eq!(run_budget(&caps, &spent(1_000), None), None);
    }
}
