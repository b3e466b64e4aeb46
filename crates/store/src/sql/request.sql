-- Stores calls of running attempts as requests to people, many at once: each once, with its event. Fenced by the
-- worker's row and each lease. A call already requested by an attempt that died keeps that row.
with me as materialized (
    select id from workers where id = $1 and dead_at is null for key share
),
now as materialized (
    select longhaul_now() as now from me
),
item as (
    select * from unnest($2::requested_call[])
),
held as materialized (
    select e.id, e.tenant_id, e.agent_key, e.event_seq, e.deadline_at, e.lease_token
    from me, executions e
    where e.id in (select execution_id from item) and e.worker_id is not distinct from $1
        -- The root of a tree is told (longhaul_request_surfaces).
        and (e.root_id is null or longhaul_try_lock(e.root_id))
    order by e.id
    for update of e skip locked
),
asked as (
    insert into human_requests (
        id, execution_id, tenant_id, agent_key, kind, call_key, round, call_id, tool, arguments, shown, hash, schema,
        policy, allow_self, redact, requested_at, expires_at
    )
    select longhaul_uuid(), held.id, held.tenant_id, held.agent_key, item.kind, item.call_key, item.round,
        item.call_id, item.tool, item.arguments, item.shown, item.hash, item.schema::json, item.policy,
        item.allow_self, item.redact, now.now,
        least(now.now + item.expires_seconds * interval '1 second', held.deadline_at)
    from now, item join held on held.id = item.execution_id and held.lease_token = item.token
    on conflict (execution_id, call_key, kind, round) do nothing
    returning id, execution_id, kind, call_id, tool, policy, requested_at, expires_at
),
numbered as (
    select asked.*, held.event_seq + row_number() over (partition by asked.execution_id order by asked.id) as seq
    from asked join held on held.id = asked.execution_id
),
told as (
    insert into events (execution_id, seq, at, kind, data)
    select execution_id, seq, requested_at,
        case kind when 'approval' then 'approval_requested' when 'question' then 'question_asked'
            else 'tool_call_pending' end,
        jsonb_strip_nulls(jsonb_build_object(
            'id', id, 'call_id', call_id, 'tool', tool, 'policy', policy, 'expires_at', expires_at
        ))
    from numbered
)
update executions e
set event_seq = last.seq
from (select execution_id, max(seq) as seq from numbered group by execution_id) as last
where e.id = last.execution_id
