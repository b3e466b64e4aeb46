//! Lanes: an endpoint as the process that delivers to it holds it.

use std::time::Duration;

use chrono::{DateTime, Utc};
use longhaul_domain::{ExecutionId, TenantId};
use strum::{EnumString, IntoStaticStr, VariantArray};
use uuid::Uuid;

use super::{DisabledBecause, EndpointKind, endpoints::kind};
use crate::{Store, StoreError};

/// An endpoint with something due, held by this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lane {
    pub endpoint: Uuid,
    pub tenant: TenantId,
    pub kind: EndpointKind,
    /// Address; that of a Slack channel is encrypted.
    pub url: String,
    pub secret_number: i32,
    /// True while the secret before signs as well.
    pub signs_twice: bool,
    /// True if nothing was delivered since its last failure, or ever.
    pub is_doubtful: bool,
    /// Token under which it is held.
    pub token: Uuid,
}

/// A delivery whose time has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    pub id: Uuid,
    /// Type of the event, as a later release may have written it.
    pub event: String,
    pub execution: Option<ExecutionId>,
    pub request: Option<Uuid>,
    pub occurred_at: DateTime<Utc>,
}

/// Result of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, EnumString, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Outcome {
    Delivered,
    /// The endpoint works, and refused this delivery: it alone is tried again, after 5 s, 5 min, 30 min, 2 h, 5 h,
    /// 10 h, 14 h and each 20 h.
    Refused,
    /// The endpoint does not work: its lane is closed for 5 s, and for twice as long after each further failure, up to
    /// 5 min.
    Away,
    /// The endpoint answered 410: it is disabled.
    Gone,
}

longhaul_domain::named!(Outcome);

/// An attempt to store.
#[derive(Debug, Clone)]
pub struct Settled {
    pub delivery: Uuid,
    pub outcome: Outcome,
    /// Status of the answer.
    pub status: Option<u16>,
    /// Reason of a failure.
    pub error: Option<String>,
}

/// State of a lane after attempts were stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneState {
    Held,
    /// Its endpoint is disabled by these attempts.
    Disabled(DisabledBecause),
    /// It is not held any more, or its endpoint is deleted or disabled: nothing was stored.
    Lost,
}

/// Lanes of a process by tenant.
#[derive(Debug, Clone, Default)]
pub struct HeldLanes {
    pub of: Vec<(TenantId, u64)>,
    /// Most lanes that a tenant has after a claim; `None` without a bound.
    pub most: Option<u64>,
}

impl Store {
    /// Takes up to `most` lanes with something due for `hold`. They go to the tenants that hold fewest.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn claim_lanes(&self, most: u64, held: &HeldLanes, hold: Duration) -> Result<Vec<Lane>, StoreError> {
        let token = Uuid::new_v4();
        let count = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let (tenants, lanes): (Vec<Uuid>, Vec<i64>) =
            held.of.iter().map(|(tenant, lanes)| (tenant.0, count(*lanes))).unzip();
        let rows = sqlx::query_file!(
            "src/sql/claim_lanes.sql",
            token,
            count(most),
            hold.as_secs_f64(),
            &tenants,
            &lanes,
            held.most.map(count),
        )
        .fetch_all(&self.pool)
        .await?;
        // A lane of a kind that only a later release knows is left until its time is over.
        let known = rows.into_iter().filter_map(|row| Some((kind(&row.kind).ok()?, row)));
        Ok(known
            .map(|(kind, row)| Lane {
                endpoint: row.id,
                tenant: TenantId(row.tenant_id),
                kind,
                url: row.url,
                secret_number: row.secret_number,
                signs_twice: row.signs_twice,
                is_doubtful: row.is_doubtful,
                token,
            })
            .collect())
    }

    /// The deliveries of a lane whose time has come and that are not under way, oldest first, at most `most`.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn due_deliveries(&self, lane: &Lane, under_way: &[Uuid], most: usize) -> Result<Vec<Due>, StoreError> {
        let due = sqlx::query_as!(
            Due,
            r#"
            select id, type as event, execution_id as "execution: _", request_id as request, occurred_at
            from webhook_deliveries
            where endpoint_id = $1 and next_at <= longhaul_now() and id <> all ($3)
            order by next_at
            limit $2
            "#,
            lane.endpoint,
            i64::try_from(most).unwrap_or(i64::MAX),
            under_way,
        );
        Ok(due.fetch_all(&self.pool).await?)
    }

    /// Stores attempts, and holds the lane for `hold` from now. The endpoint is disabled if it answered 410, or nothing
    /// was delivered for `patience`. Stores nothing if the lane is not held any more.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn settle_deliveries(
        &self,
        lane: &Lane,
        settled: &[Settled],
        (patience, hold): (Duration, Duration),
    ) -> Result<LaneState, StoreError> {
        let ids: Vec<Uuid> = settled.iter().map(|of| of.delivery).collect();
        let outcomes: Vec<String> = settled.iter().map(|of| of.outcome.as_str().to_owned()).collect();
        let statuses: Vec<Option<i32>> = settled.iter().map(|of| of.status.map(i32::from)).collect();
        let errors: Vec<Option<String>> = settled.iter().map(|of| of.error.clone()).collect();
        let disabled = sqlx::query_file_scalar!(
            "src/sql/settle_deliveries.sql",
            lane.endpoint,
            lane.token,
            &ids,
            &outcomes,
            &statuses as &[Option<i32>],
            &errors as &[Option<String>],
            patience.as_secs_f64(),
            hold.as_secs_f64(),
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(match disabled {
            None => LaneState::Lost,
            Some(because) => {
                because.as_deref().and_then(DisabledBecause::parse).map_or(LaneState::Held, LaneState::Disabled)
            }
        })
    }

    /// Gives a lane back.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn release_lane(&self, lane: &Lane) -> Result<(), StoreError> {
        sqlx::query!(
            "update webhook_endpoints set lane_until = clock_timestamp() where id = $1 and lane_token = $2",
            lane.endpoint,
            lane.token,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}
