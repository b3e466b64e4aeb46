//! Recent usage of tenants, as one process knows it: tokens, or the time for which permits of workers were held where
//! that is more, halved every five minutes. Claims order tenants by it.
//!
//! A claim is charged with the usual usage of an attempt, because the actual usage is known only at its end,
//! which corrects the charge. Charges of other processes come with `exchange_usage`, every few seconds. Nothing
//! of this is a write of the hot path, and losing it costs only some fairness for some minutes.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use uuid::Uuid;

use crate::{Store, StoreError};
use longhaul_shared::domain::TenantId;

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

/// A row of the type `tenant_use`: recent usage of a tenant, in tokens.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "tenant_use")]
pub(crate) struct TenantUse {
    tenant_id: Uuid,
    tokens: f64,
}

/// Recent usage of tenants.
#[derive(Debug)]
pub struct TenantShares(Mutex<Shares>);

#[derive(Debug)]
struct Shares {
    usage: HashMap<Uuid, Usage>,
    usual: f64,
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

impl Default for TenantShares {
    fn default() -> Self {
        Self(Mutex::new(Shares { usage: HashMap::new(), usual: FIRST_GUESS }))
    }
}

impl TenantShares {
    fn lock(&self) -> std::sync::MutexGuard<'_, Shares> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Usual usage of an attempt, in tokens.
    #[must_use]
    pub fn usual(&self) -> f64 {
        self.lock().usual
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

    /// Tenants with their recent usage.
    pub(crate) fn usage(&self) -> Vec<TenantUse> {
        let (shares, now) = (self.lock(), Instant::now());
        shares.usage.iter().map(|(id, usage)| TenantUse { tenant_id: *id, tokens: usage.decayed(now) }).collect()
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
    /// Tells other processes the charges of this one, and learns theirs.
    ///
    /// # Errors
    /// Postgres is unavailable. The charges to tell are lost then.
    pub async fn exchange_usage(&self, shares: &TenantShares) -> Result<(), StoreError> {
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
                        + u.tokens * power(0.5, greatest(extract(epoch from excluded.at - u.at), 0)::float8 / $3::float8)),
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
                greatest(0, tokens) * power(0.5, greatest(extract(epoch from longhaul_now() - at), 0)::float8 / $1::float8) as "tokens!"
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
        assert_eq!(shares.usual(), FIRST_GUESS + LEARNING * 4_000.0);
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
