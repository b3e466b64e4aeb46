-- Claims the next runnable executions in fair order, each with a new lease, and returns those that a concurrency
-- limit held back (`longhaul_claim`). Nothing is joined here: this query's snapshot does not show rows that the
-- function found.
select
    (c.execution).id as "id!", (c.execution).tenant_id as "tenant_id!",
    (c.execution).definition_version_id as "definition_version_id!",
    (c.execution).agent_version_id as "agent_version_id!",
    (c.execution).queue as "queue!", (c.execution).serve_key as "serve_key!", (c.execution).lane as "lane!",
    coalesce((c.execution).lease_token, (c.execution).id) as "token!", (c.execution).attempt as "attempt!",
    (c.execution).created_at as "created_at!",
    coalesce((c.execution).claimed_at, (c.execution).created_at) as "claimed_at!",
    coalesce((c.execution).active_until, (c.execution).deadline_at) as "active_until!",
    (c.execution).deadline_at as "deadline_at!", (c.execution).wake_seq as "wake_seq!",
    (c.execution).transient_retries as "transient_retries!", (c.execution).tool_error_retries as "tool_error_retries!",
    (c.execution).llm_error_retries as "llm_error_retries!",
    (c.execution).cancel_requested_at is not null as "cancel_requested!",
    (c.execution).attempt > 1 or (c.execution).retry_of is not null or (c.execution).forked_from is not null
        as "has_history!",
    (c.execution).forked_from is not null as "is_fork!", (c.execution).session_id as "session: _",
    coalesce((c.execution).root_id, (c.execution).id) as "root!", (c.execution).depth as "depth!",
    (c.execution).has_budget as "has_budget!",
    coalesce((c.execution).budget_id, (c.execution).root_id, (c.execution).id) as "budget_root!",
    (c.execution).input_tokens + (c.execution).output_tokens as "tokens!",
    longhaul_claim_rank((c.execution).created_at, (c.execution).priority) as "rank!",
    c.is_new as "is_first!", c.refused_keys, c.overrides::text as overrides, coalesce(c.input::text, '') as "input!",
    c.traceparent,
    -- The caller charges the tenant.
    0::float8 as "charged!"
from longhaul_claim($1, $2, $3) c
