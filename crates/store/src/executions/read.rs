//! Reads executions: one, or many by filter.
//!
//! A list takes the access path that its filters name, so that each is one backward scan of an index per tenant
//! (core-rules 16). Its statement is built of fixed parts, one for each filter that is set; values are bound. Filters
//! that a path does not use are checked row by row.

use chrono::{DateTime, Utc};
use longhaul_sdk::Usd;
use serde_json::{Value, value::RawValue};
use sqlx::{Encode, Postgres, QueryBuilder, Type};
use uuid::Uuid;

use crate::{
    Store, StoreError,
    columns::Nanos,
    executions::list_filter::{AccessPath, Explain, ListFilter, MAX_EXAMINED},
    tenants::scope::TenantScope,
};
use longhaul_domain::{ApiKeyId, ExecutionId, ExecutionStatus, TenantId, WaitReason, WorkerId};

/// State of an execution, without its bodies.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct ExecutionSummary {
    pub id: ExecutionId,
    pub tenant_id: TenantId,
    /// Organisation of the tenant.
    pub org_id: String,
    /// Group of the tenant.
    pub group_id: Option<String>,
    pub definition_key: String,
    pub definition_version: Option<i32>,
    pub agent_key: String,
    pub agent_version: Option<i32>,
    pub queue: String,
    /// 0 to 9; the higher is claimed first.
    pub priority: i16,
    pub status: ExecutionStatus,
    /// Wait reason while no worker holds it.
    pub wait_reason: Option<WaitReason>,
    /// End of the wait, where known.
    pub wait_until: Option<DateTime<Utc>>,
    pub failure_class: Option<String>,
    pub failure_code: Option<String>,
    /// Failure text for people.
    pub failure_summary: Option<String>,
    /// Attempts spent, and the one under way.
    pub attempts: i32,
    /// Retries after `transient`, `tool_error` and `llm_error` failures.
    pub retries: [i16; 3],
    /// Model calls.
    pub turns: i32,
    /// Tool calls.
    pub calls: i32,
    /// Tokens sent to models.
    pub input_tokens: i64,
    /// Tokens received from models.
    pub output_tokens: i64,
    /// Tokens sent that were read from providers' caches.
    pub cached_tokens: i64,
    /// Tokens sent that were written to providers' caches.
    pub cache_write_tokens: i64,
    /// Cost of its model calls, as far as it is known.
    #[sqlx(try_from = "Nanos")]
    pub cost: Usd,
    /// Model calls of unknown cost.
    pub uncosted_turns: i32,
    /// Time for which workers held it, in seconds.
    pub active_seconds: f64,
    pub created_at: DateTime<Utc>,
    /// Time of the first claim.
    pub started_at: Option<DateTime<Utc>>,
    pub finished_at: Option<DateTime<Utc>>,
    pub deadline_at: DateTime<Utc>,
    pub cancel_requested_at: Option<DateTime<Utc>>,
    /// Time at which its texts were erased.
    pub erased_at: Option<DateTime<Utc>>,
    /// Execution of which it is a person's retry.
    pub retry_of: Option<ExecutionId>,
    /// Execution that a fork continues.
    pub forked_from: Option<ExecutionId>,
    /// First step that a fork does not share with it.
    pub forked_before: Option<i32>,
    /// Execution that started it.
    pub parent: Option<ExecutionId>,
    /// Topmost execution of its tree; itself outside trees.
    pub root: ExecutionId,
    /// Levels below the root.
    pub depth: i16,
    /// Number of executions that it started.
    pub children: i32,
    /// Key that submitted it.
    pub submitted_by: Option<ApiKeyId>,
    /// W3C trace context of the submit.
    pub traceparent: Option<String>,
    /// Worker that holds it.
    pub worker_id: Option<WorkerId>,
    /// Labels set by the caller.
    pub metadata: Value,
    /// Number of the last event.
    pub event_seq: i32,
}

/// An execution with its bodies.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct ExecutionRecord {
    #[sqlx(flatten)]
    pub summary: ExecutionSummary,
    /// Input, byte for byte.
    #[sqlx(json)]
    pub input: Box<RawValue>,
    #[sqlx(json(nullable))]
    pub output: Option<Box<RawValue>>,
    /// Facts about the failure, for machines.
    #[sqlx(json(nullable))]
    pub failure_detail: Option<Box<RawValue>>,
}

/// Columns of the executions of a CTE `page`.
const SUMMARIES: &str = "
    select
        e.id, e.tenant_id, t.org_id, nullif(t.group_id, '') as group_id, e.definition_key,
        d.version as definition_version, e.agent_key, a.version as agent_version, e.queue, e.priority,
        e.status::text as status, e.wait_reason, e.wait_until, e.failure_class, e.failure_code, p.failure_summary,
        e.attempt as attempts, array[e.transient_retries, e.tool_error_retries, e.llm_error_retries] as retries,
        e.turns, e.calls, e.input_tokens, e.output_tokens, e.cached_tokens, e.cache_write_tokens, e.cost,
        e.uncosted_turns, extract(epoch from e.active_time)::float8 as active_seconds, e.created_at, e.started_at,
        e.finished_at, e.deadline_at, e.cancel_requested_at, p.erased_at, e.retry_of, e.forked_from, e.forked_before,
        e.parent_id as parent, coalesce(e.root_id, e.id) as root, e.depth, e.children, e.submitted_by, p.traceparent,
        e.worker_id, e.metadata, e.event_seq";
const BODIES: &str = ", coalesce(p.input, 'null') as input, p.output, p.failure_detail";
/// Tables of those columns; the newest execution is first.
const OF_PAGE: &str = "
    from page
    join executions e on e.id = page.id
    join tenants t on t.id = e.tenant_id
    left join execution_payloads p on p.execution_id = e.id
    left join definition_versions d on d.id = e.definition_version_id
    left join agent_versions a on a.id = e.agent_version_id
    order by e.id desc";
/// Failure codes of a tenant. They are few: each is one scan in the order of ids, where a scan over all of them would
/// have to sort.
const FAILURE_CODES: &str = "
    cross join lateral (
        with recursive codes as (
            (
                select f.failure_code from executions f
                where f.tenant_id = t.tenant_id and f.status = 'FAILED'
                order by f.failure_code limit 1
            )
            union all
            select (
                select f.failure_code from executions f
                where f.tenant_id = t.tenant_id and f.status = 'FAILED' and f.failure_code > codes.failure_code
                order by f.failure_code limit 1
            )
            from codes where codes.failure_code is not null
        )
        select codes.failure_code from codes where codes.failure_code is not null
    ) c";

/// Executions along the index of a list: a range of ids, and how many of them are examined after how many.
#[derive(Debug, Clone)]
struct Window {
    path: AccessPath,
    /// Conditions that the index answers.
    along: ListFilter,
    ids: (Uuid, Uuid),
    examined: i64,
    skipped: i64,
}

impl Window {
    /// The newest executions.
    fn first(filter: &ListFilter) -> Self {
        Self {
            path: filter.access_path(),
            along: filter.along_path(),
            ids: filter.id_range(),
            examined: MAX_EXAMINED,
            skipped: 0,
        }
    }

    /// Rows that the index needs beside the tenant `t`, the table that it is of, and conditions that name it.
    fn access(&self) -> (&'static str, &'static str, &'static str) {
        const OF_TENANT: &str = "executions e where e.tenant_id = t.tenant_id";
        match self.path {
            AccessPath::Tenant
            | AccessPath::Children
            | AccessPath::Tree
            | AccessPath::Definition
            | AccessPath::Agent
            | AccessPath::Queue => ("", OF_TENANT, ""),
            AccessPath::Metadata => ("", OF_TENANT, " and e.metadata <> '{}'"),
            AccessPath::Parked => (
                "",
                "parked k join executions e on e.id = k.execution_id and e.wait_reason = k.wait_reason
                where k.tenant_id = t.tenant_id and e.tenant_id = t.tenant_id",
                "",
            ),
            AccessPath::Open => (
                "cross join (values ('PENDING'::execution_status), ('IN_PROGRESS')) as s (status)",
                OF_TENANT,
                " and e.finished_at is null and e.status = s.status",
            ),
            AccessPath::Failed if self.along.failure_code.is_some() => ("", OF_TENANT, " and e.status = 'FAILED'"),
            AccessPath::Failed => {
                (FAILURE_CODES, OF_TENANT, " and e.status = 'FAILED' and e.failure_code = c.failure_code")
            }
        }
    }
}

type Query = QueryBuilder<Postgres>;

/// Adds a condition on a value, if there is one.
fn narrow<T: for<'q> Encode<'q, Postgres> + Type<Postgres>>(query: &mut Query, condition: &str, value: Option<T>) {
    if let Some(value) = value {
        query.push(" and ").push(condition).push(" ").push_bind(value);
    }
}

/// Adds the conditions of a filter on an execution `e`, without its range of ids.
fn narrow_by(query: &mut Query, filter: &ListFilter) {
    if let Some(status) = filter.status {
        query.push(" and e.status = ").push_bind(status.as_str()).push("::execution_status");
    }
    narrow(query, "e.wait_reason =", filter.wait_reason.map(WaitReason::as_str));
    narrow(query, "e.agent_key =", filter.agent.clone());
    narrow(query, "e.definition_key =", filter.definition.clone());
    narrow(query, "e.failure_code =", filter.failure_code.clone());
    narrow(query, "e.queue =", filter.queue.clone());
    narrow(query, "e.metadata @>", filter.metadata.clone());
    narrow(query, "e.created_at >=", filter.created_after);
    narrow(query, "e.created_at <", filter.created_before);
    narrow(query, "e.parent_id =", filter.parent.map(|id| id.0));
    if let Some(root) = filter.root {
        query.push(" and ").push_bind(root.0).push(" in (e.root_id, e.id)");
    }
}

/// The newest executions by tenant along the window's index, those of all tenants together; `explain` stands in front.
fn list_query(explain: &str, reach: &TenantScope, filter: &ListFilter, window: &Window) -> Query {
    let (beside, table, condition) = window.access();
    let id = if window.path == AccessPath::Parked { "k.execution_id" } else { "e.id" };
    let mut query = Query::new(explain);
    query.push(" with page as (select picked.id from (select id as tenant_id from tenants where true");
    if let Some(tenants) = reach.ids() {
        query.push(" and id = any(").push_bind(tenants).push(")");
    }
    query.push(") t ").push(beside);
    query.push(" cross join lateral (select e.id from (select e.* from ").push(table).push(condition);
    narrow(&mut query, &format!("{id} >="), Some(window.ids.0));
    narrow(&mut query, &format!("{id} <"), Some(window.ids.1));
    narrow_by(&mut query, &window.along);
    query.push(" order by e.id desc limit ").push_bind(window.examined).push(" offset ").push_bind(window.skipped);
    query.push(") e where true");
    narrow_by(&mut query, filter);
    query.push(" order by e.id desc limit ").push_bind(filter.limit);
    query.push(") picked order by picked.id desc limit ").push_bind(filter.limit).push(")");
    query.push(SUMMARIES).push(OF_PAGE);
    query
}

pub(crate) fn raw(text: String) -> Result<Box<RawValue>, StoreError> {
    RawValue::from_string(text).map_err(|error| StoreError::Corrupt(format!("a stored body: {error}")))
}

impl Store {
    /// The database's time by the last measurement, without a query: good enough for ages and ends of sessions.
    #[must_use]
    pub fn believed_now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    /// The executions that pass `filter`, newest first, among the newest [`MAX_EXAMINED`] of each tenant along the
    /// index of the list.
    ///
    /// # Errors
    /// Postgres is unavailable, or a row cannot be read.
    pub async fn list_executions(
        &self,
        reach: &TenantScope,
        filter: &ListFilter,
    ) -> Result<Vec<ExecutionSummary>, StoreError> {
        self.list_window(reach, filter, &Window::first(filter)).await
    }

    /// The execution after which a list with this filter goes on that was not full; `None` if it has no more.
    ///
    /// # Errors
    /// Postgres is unavailable, or a row cannot be read.
    pub async fn list_goes_on(
        &self,
        reach: &TenantScope,
        filter: &ListFilter,
    ) -> Result<Option<ExecutionId>, StoreError> {
        if !filter.is_partial() {
            return Ok(None);
        }
        let window = Window { examined: 1, skipped: MAX_EXAMINED - 1, ..Window::first(filter) };
        let last = self.list_window(reach, &window.along, &window).await?;
        Ok(last.first().map(|last| last.id))
    }

    // Planned for its values each time: one plan for all values would have to guess how many rows a filter leaves.
    async fn list_window(
        &self,
        reach: &TenantScope,
        filter: &ListFilter,
        window: &Window,
    ) -> Result<Vec<ExecutionSummary>, StoreError> {
        let mut query = list_query("", reach, filter, window);
        Ok(query.build_query_as().persistent(false).fetch_all(&self.pool).await?)
    }

    /// Plan of [`Self::list_executions`] by Postgres, as text. With `analyze` the query runs and its rows are
    /// counted.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn explain_list(
        &self,
        reach: &TenantScope,
        filter: &ListFilter,
        explain: Explain,
    ) -> Result<String, StoreError> {
        let explain = match explain {
            Explain::Plan => "explain (costs off)",
            Explain::Analyze => "explain (analyze, buffers)",
        };
        let mut query = list_query(explain, reach, filter, &Window::first(filter));
        let lines: Vec<String> = query.build_query_scalar().persistent(false).fetch_all(&self.pool).await?;
        Ok(lines.join("\n"))
    }

    /// One execution with its bodies; `None` if there is none within `reach`.
    ///
    /// # Errors
    /// Postgres is unavailable, or the row cannot be read.
    pub async fn get_execution(
        &self,
        reach: &TenantScope,
        id: ExecutionId,
    ) -> Result<Option<ExecutionRecord>, StoreError> {
        let mut query = Query::new("with page as (select id from executions where true");
        narrow(&mut query, "id =", Some(id.0));
        if let Some(tenants) = reach.ids() {
            query.push(" and tenant_id = any(").push_bind(tenants).push(")");
        }
        query.push(")").push(SUMMARIES).push(BODIES).push(OF_PAGE);
        Ok(query.build_query_as().fetch_optional(&self.pool).await?)
    }

    /// Execution of an idempotency key, with the hash of its request.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn find_idempotency_key(
        &self,
        tenant: TenantId,
        key: &str,
    ) -> Result<Option<(ExecutionId, Vec<u8>)>, StoreError> {
        let row = sqlx::query!(
            "select execution_id, request_hash from idempotency_keys where tenant_id = $1 and key = $2",
            tenant.0,
            key,
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.map(|row| (ExecutionId(row.execution_id), row.request_hash)))
    }

    /// Numbers of executions by status over all time, from the counts that the sweep keeps.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn count_executions(&self, reach: &TenantScope) -> Result<Vec<(ExecutionStatus, i64)>, StoreError> {
        let tenants = reach.ids();
        let rows = sqlx::query!(
            r#"
            select c.status::text as "status!", sum(c.n)::bigint as "n!"
            from (
                select status, n from execution_counts where $1::uuid[] is null or tenant_id = any($1)
                union all
                select status, n from execution_count_changes where $1::uuid[] is null or tenant_id = any($1)
            ) c
            group by c.status
            "#,
            tenants.as_deref() as Option<&[Uuid]>,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().filter_map(|row| Some((ExecutionStatus::parse(&row.status)?, row.n))).collect())
    }
}
