//! What tenants use of the workers, as one process knows it. Claims order tenants by it (docs/design/fairness.md):
//! first by the permits that they hold in this process, then by those that they hold in others, then by recent usage:
//! tokens, or the time for which permits were held where that is more, halved every five minutes.
//!
//! A claim is charged with the usual usage of an attempt, because the actual usage is known only at its end,
//! which corrects the charge. Charges and permits of other processes come with `exchange_usage`, every few seconds.
//! Nothing of this is a write of the hot path, and losing it costs only some fairness for some minutes.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::{Store, StoreError};
use longhaul_domain::{TenantId, WorkerId};

/// Half-life of usage. The functions of the database that read `tenant_usage` use it too.
pub const HALF_LIFE: Duration = Duration::from_secs(300);
/// Usual usage of an attempt before any has ended, in tokens.
const FIRST_GUESS: f64 = 1_000.0;
/// Least usage per second of a place on a worker, in tokens: an attempt that asks no model keeps others from its
/// place, too.
const TOKENS_PER_SECOND: f64 = 100.0;
/// Weight of one more attempt in the usual usage.
const LEARNING: f64 = 0.05;
/// Most tenants kept apart; of more, those with the least usage count as having none.
const MAX_TENANTS: usize = 1_000;
/// Weight of a permit held in another process, in tokens: more than any usage.
const HELD_ELSEWHERE: f64 = 1e10;
/// Weight of a permit held in this process: more than all held elsewhere. The sum of all three is exact to about a
/// hundred tokens with a thousand permits.
const HELD_HERE: f64 = 1e15;
/// Age from which the permits of a process no longer count: a process tells them every two seconds, and the executions
/// of one that died are taken over when its lease has expired.
const HELD_LIFE: Duration = Duration::from_secs(6);
/// Least time between two sums over all processes.
const SUM_EVERY: Duration = Duration::from_secs(1);

/// A row of the type `tenant_use`: what a tenant uses, as one number by which claims order tenants.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "tenant_use")]
pub(crate) struct TenantUse {
    tenant_id: Uuid,
    tokens: f64,
}

/// What tenants use of the workers.
#[derive(Debug, Default)]
pub struct TenantShares {
    shares: Mutex<Shares>,
    returned: Arc<Notify>,
}

#[derive(Debug)]
struct Shares {
    usage: HashMap<Uuid, Usage>,
    usual: f64,
    /// Permits held in this process, by tenant; none is zero.
    held: HashMap<Uuid, u32>,
    /// Permits held in this process as other processes know them.
    told: HashMap<Uuid, u32>,
    /// Permits held in other processes.
    elsewhere: HashMap<Uuid, u32>,
}

/// A permit that a tenant holds in this process until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct HeldPermit {
    shares: Arc<TenantShares>,
    tenant: Uuid,
}

impl Drop for HeldPermit {
    fn drop(&mut self) {
        let held = &mut self.shares.lock().held;
        if let Some(count) = held.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.tenant);
                self.shares.returned.notify_one();
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Usage {
    tokens: f64,
    at: Instant,
    /// Part that other processes have not been told yet.
    untold: f64,
}

impl Usage {
    fn decayed(&self, now: Instant) -> f64 {
        self.tokens * decay(now.saturating_duration_since(self.at))
    }
}

fn decay(over: Duration) -> f64 {
    (-over.as_secs_f64() / HALF_LIFE.as_secs_f64()).exp2()
}

impl Default for Shares {
    fn default() -> Self {
        Self {
            usage: HashMap::new(),
            usual: FIRST_GUESS,
            held: HashMap::new(),
            told: HashMap::new(),
            elsewhere: HashMap::new(),
        }
    }
}

impl TenantShares {
    fn lock(&self) -> MutexGuard<'_, Shares> {
        self.shares.lock()
    }

    /// Counts a permit of this process as held by `tenant`.
    pub fn hold(self: &Arc<Self>, tenant: TenantId) -> HeldPermit {
        *self.lock().held.entry(tenant.0).or_default() += 1;
        HeldPermit { shares: Arc::clone(self), tenant: tenant.0 }
    }

    /// Notified when a tenant has returned the last permit that it held in this process.
    #[must_use]
    pub fn returned(&self) -> Arc<Notify> {
        Arc::clone(&self.returned)
    }

    /// Permits that `tenant` holds in this process.
    #[must_use]
    pub fn held_by(&self, tenant: TenantId) -> u32 {
        self.lock().held.get(&tenant.0).copied().unwrap_or_default()
    }

    /// Permits that `tenant` holds in other processes, by the last exchange.
    #[must_use]
    pub fn held_elsewhere_by(&self, tenant: TenantId) -> u32 {
        self.lock().elsewhere.get(&tenant.0).copied().unwrap_or_default()
    }

    /// Tenants that hold permits of this process.
    pub(crate) fn holders(&self) -> Vec<Uuid> {
        self.lock().held.keys().copied().collect()
    }

    /// Weight of one more permit with the usual usage of an attempt.
    pub(crate) fn one_more(&self) -> f64 {
        HELD_HERE + self.lock().usual
    }

    /// Charges `tenant` for an attempt that began; returns the charge in tokens.
    pub fn begin(&self, tenant: TenantId) -> f64 {
        let mut shares = self.lock();
        let usual = shares.usual;
        shares.charge(tenant.0, usual, Instant::now());
        usual
    }

    /// Corrects the charge of an attempt that ended, took `tokens`, and had a place on a worker for the time
    /// `held`.
    pub fn end(&self, tenant: TenantId, charged: f64, tokens: i64, held: Duration) {
        let mut shares = self.lock();
        let took = (tokens.max(1) as f64).max(held.as_secs_f64() * TOKENS_PER_SECOND);
        shares.usual += LEARNING * (took - shares.usual);
        shares.charge(tenant.0, took - charged, Instant::now());
    }

    /// Tenants with what they use.
    pub(crate) fn usage(&self) -> Vec<TenantUse> {
        let (shares, now) = (self.lock(), Instant::now());
        let mut used: HashMap<Uuid, f64> =
            shares.usage.iter().map(|(tenant, usage)| (*tenant, usage.decayed(now))).collect();
        for (held, weight) in [(&shares.elsewhere, HELD_ELSEWHERE), (&shares.held, HELD_HERE)] {
            for (tenant, count) in held {
                *used.entry(*tenant).or_default() += f64::from(*count) * weight;
            }
        }
        used.into_iter().map(|(tenant_id, tokens)| TenantUse { tenant_id, tokens }).collect()
    }

    /// Permits to tell other processes, or `None` if there are none and none were told before.
    fn take_held(&self) -> Option<(Vec<Uuid>, Vec<i32>)> {
        let mut shares = self.lock();
        let has_news = !shares.held.is_empty() || !shares.told.is_empty();
        shares.told = shares.held.clone();
        let held = shares.held.iter().map(|(tenant, count)| (*tenant, i32::try_from(*count).unwrap_or(i32::MAX)));
        has_news.then(|| held.unzip())
    }

    /// Takes over the permits held in all processes together; what this process told is its own.
    fn learn_held(&self, all: impl Iterator<Item = (Uuid, i64)>) {
        let mut shares = self.lock();
        let own = |tenant| shares.told.get(&tenant).copied().unwrap_or_default();
        let elsewhere = all.filter_map(|(tenant, count)| {
            let count = u32::try_from(count).unwrap_or_default().saturating_sub(own(tenant));
            (count > 0).then_some((tenant, count))
        });
        shares.elsewhere = elsewhere.collect();
    }

    /// Usage to tell other processes; it counts as told.
    fn take_untold(&self) -> (Vec<Uuid>, Vec<f64>) {
        let mut shares = self.lock();
        let mut untold: Vec<(Uuid, f64)> = Vec::new();
        for (tenant, usage) in &mut shares.usage {
            if usage.untold != 0.0 {
                untold.push((*tenant, std::mem::take(&mut usage.untold)));
            }
        }
        // In one order, so that two processes cannot deadlock.
        untold.sort_unstable_by_key(|(tenant, _)| *tenant);
        untold.into_iter().unzip()
    }

    /// Takes over the usage known to all processes together, plus what was charged here meanwhile.
    fn learn(&self, told: impl Iterator<Item = (Uuid, f64)>) {
        let (mut shares, now) = (self.lock(), Instant::now());
        let untold: Vec<(Uuid, f64)> = shares
            .usage
            .iter()
            .filter(|(_, usage)| usage.untold != 0.0)
            .map(|(tenant, usage)| (*tenant, usage.untold))
            .collect();
        shares.usage = told.map(|(tenant, tokens)| (tenant, Usage { tokens, at: now, untold: 0.0 })).collect();
        for (tenant, tokens) in untold {
            shares.charge(tenant, tokens, now);
        }
    }
}

impl Shares {
    fn charge(&mut self, tenant: Uuid, tokens: f64, now: Instant) {
        if self.usage.len() >= MAX_TENANTS && !self.usage.contains_key(&tenant) {
            let least = self.usage.iter().min_by(|a, b| a.1.decayed(now).total_cmp(&b.1.decayed(now)));
            if let Some(least) = least.map(|(tenant, _)| *tenant) {
                self.usage.remove(&least);
            }
        }
        let usage = self.usage.entry(tenant).or_insert(Usage { tokens: 0.0, at: now, untold: 0.0 });
        *usage = Usage { tokens: (usage.decayed(now) + tokens).max(0.0), at: now, untold: usage.untold + tokens };
    }
}

impl Store {
    /// Tells other processes the charges and the permits of this one, and learns theirs.
    ///
    /// # Errors
    /// Postgres is unavailable. The charges to tell are lost then.
    pub async fn exchange_usage(&self, worker: WorkerId, shares: &TenantShares) -> Result<(), StoreError> {
        self.exchange_permits(worker, shares).await?;
        let (tenants, tokens) = shares.take_untold();
        if !tenants.is_empty() {
            sqlx::query!(
                r#"
                insert into tenant_usage as u (tenant_id, tokens, at)
                select told.tenant_id, told.tokens, longhaul_now()
                from unnest($1::uuid[], $2::float8[]) as told (tenant_id, tokens)
                order by told.tenant_id
                on conflict (tenant_id) do update
                set tokens = greatest(0, excluded.tokens
                        + u.tokens * power(0.5,
                            greatest(extract(epoch from excluded.at - u.at), 0)::float8 / $3::float8)),
                    at = excluded.at
                "#,
                &tenants,
                &tokens,
                HALF_LIFE.as_secs_f64(),
            )
            .execute(&self.pool)
            .await?;
        }
        let rows = sqlx::query!(
            r#"
            select tenant_id,
                greatest(0, tokens) * power(0.5,
                    greatest(extract(epoch from longhaul_now() - at), 0)::float8 / $1::float8) as "tokens!"
            from tenant_usage
            where at > longhaul_now() - $1::float8 * interval '20 seconds'
            order by tokens desc
            limit $2
            "#,
            HALF_LIFE.as_secs_f64(),
            MAX_TENANTS as i64,
        )
        .fetch_all(&self.pool)
        .await?;
        shares.learn(rows.into_iter().map(|row| (row.tenant_id, row.tokens)));
        Ok(())
    }

    async fn exchange_permits(&self, worker: WorkerId, shares: &TenantShares) -> Result<(), StoreError> {
        if let Some((tenants, held)) = shares.take_held() {
            sqlx::query!(
                "insert into worker_permits (worker_id, tenants, held, at) values ($1, $2, $3, longhaul_now())
                on conflict (worker_id) do update set tenants = excluded.tenants, held = excluded.held, \
                    at = excluded.at",
                worker.0,
                &tenants,
                &held,
            )
            .execute(&self.pool)
            .await?;
        }
        sqlx::query!(
            r#"
            update fleet_permits
            set at = longhaul_now(), (tenants, held) = (
                select coalesce(array_agg(total.tenant_id), '{}'), coalesce(array_agg(total.held), '{}')
                from (
                    select here.tenant_id, sum(here.held) as held
                    from worker_permits p
                    cross join lateral unnest(p.tenants, p.held) as here (tenant_id, held)
                    where p.at > longhaul_now() - $1::float8 * interval '1 second'
                    group by here.tenant_id
                ) total
            )
            where is_sum in (
                select is_sum from fleet_permits where at <= longhaul_now() - $2::float8 * interval '1 second'
                for update skip locked
            )
            "#,
            HELD_LIFE.as_secs_f64(),
            SUM_EVERY.as_secs_f64(),
        )
        .execute(&self.pool)
        .await?;
        let all = sqlx::query!(
            r#"
            select here.tenant_id as "tenant_id!", here.held as "held!"
            from fleet_permits f cross join lateral unnest(f.tenants, f.held) as here (tenant_id, held)
            "#,
        )
        .fetch_all(&self.pool)
        .await?;
        shares.learn_held(all.into_iter().map(|row| (row.tenant_id, row.held)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(n: u128) -> TenantId {
        TenantId(Uuid::from_u128(n))
    }

    fn usage(shares: &TenantShares, n: u128) -> f64 {
        shares.usage().iter().find(|of| of.tenant_id == tenant(n).0).map_or(0.0, |of| of.tokens)
    }

    #[test]
    fn claim_charges_an_estimate_corrected_at_its_end() {
        let shares = TenantShares::default();
        let charged = shares.begin(tenant(1));
        assert_eq!(charged, FIRST_GUESS);
        assert!((usage(&shares, 1) - FIRST_GUESS).abs() < 1.0);
        shares.end(tenant(1), charged, 5_000, Duration::ZERO);
        assert!((usage(&shares, 1) - 5_000.0).abs() < 1.0);
        assert_eq!(shares.one_more(), HELD_HERE + FIRST_GUESS + LEARNING * 4_000.0);
        assert_eq!(usage(&shares, 2), 0.0);
    }

    #[test]
    fn held_slot_counts_if_above_its_tokens() {
        let shares = TenantShares::default();
        shares.end(tenant(1), 0.0, 7, Duration::from_secs(30));
        shares.end(tenant(2), 0.0, 5_000, Duration::from_secs(30));
        assert!((usage(&shares, 1) - 3_000.0).abs() < 1.0, "{}", usage(&shares, 1));
        assert!((usage(&shares, 2) - 5_000.0).abs() < 1.0, "{}", usage(&shares, 2));
    }

    #[test]
    fn held_permit_outweighs_any_usage_until_dropped() {
        let shares = Arc::new(TenantShares::default());
        shares.end(tenant(1), 0.0, 1_000_000_000, Duration::ZERO);
        let permits = [shares.hold(tenant(2)), shares.hold(tenant(2))];
        shares.learn_held([(tenant(2).0, 9), (tenant(3).0, 90_000)].into_iter());
        assert_eq!((shares.held_by(tenant(2)), shares.held_elsewhere_by(tenant(2))), (2, 9));
        let [used, held, elsewhere] = [1, 2, 3].map(|n| usage(&shares, n));
        assert!(used < elsewhere && elsewhere < held, "{used} {elsewhere} {held}");
        drop(permits);
        assert_eq!(shares.held_by(tenant(2)), 0);
        assert!(shares.holders().is_empty());
    }

    #[test]
    fn own_permits_do_not_count_as_held_elsewhere() {
        let shares = Arc::new(TenantShares::default());
        assert_eq!(shares.take_held(), None);
        let permit = shares.hold(tenant(1));
        assert_eq!(shares.take_held(), Some((vec![tenant(1).0], vec![1])));
        shares.learn_held([(tenant(1).0, 1)].into_iter());
        assert_eq!(shares.held_elsewhere_by(tenant(1)), 0);
        shares.learn_held([(tenant(1).0, 4)].into_iter());
        assert_eq!(shares.held_elsewhere_by(tenant(1)), 3);
        drop(permit);
        assert_eq!(shares.take_held(), Some((vec![], vec![])), "others learn of the end");
        assert_eq!(shares.take_held(), None);
    }

    #[test]
    fn usage_is_sent_once_and_survives_an_exchange() {
        let shares = TenantShares::default();
        shares.begin(tenant(1));
        assert_eq!(shares.take_untold(), (vec![tenant(1).0], vec![FIRST_GUESS]));
        assert_eq!(shares.take_untold(), (vec![], vec![]));
        shares.begin(tenant(1));
        shares.learn([(tenant(1).0, 7_000.0), (tenant(2).0, 50.0)].into_iter());
        assert!((usage(&shares, 1) - 8_000.0).abs() < 1.0, "{}", usage(&shares, 1));
        assert!((usage(&shares, 2) - 50.0).abs() < 1.0);
    }

    #[test]
    fn usage_decays_and_tenants_are_bounded() {
        assert!((decay(HALF_LIFE) - 0.5).abs() < 1e-9);
        let shares = TenantShares::default();
        shares.end(tenant(0), 0.0, 1, Duration::ZERO);
        for n in 1..=MAX_TENANTS as u128 {
            shares.end(tenant(n), 0.0, 1_000, Duration::ZERO);
        }
        assert_eq!(shares.usage().len(), MAX_TENANTS);
        assert_eq!(usage(&shares, 0), 0.0, "who used least is forgotten first");
    }
}
