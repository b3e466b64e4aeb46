-- Takes the next runnable executions in fair order: highest priority first, then oldest. One bounded index scan per slot, where
-- a slot is (queue, serve key, lane, priority) with the id after which to start.
with me as materialized (
    select id from workers where id = $1 and dead_at is null and expires_at > clock_timestamp() for key share
),
now as materialized (
    select longhaul_now() as now from me
),
picked as materialized (
    select ranked.id, ranked.was_pending
    from (
        -- A slot's room is that of its lane: it holds over all queues, serve keys and priorities together.
        select e.id, e.priority, e.was_pending, slot.room,
            row_number() over (partition by slot.lane order by e.priority desc, e.id) as place
        from now,
        unnest($2::text[], $3::text[], $4::smallint[], $5::smallint[], $6::uuid[], $7::int[])
            as slot (queue, serve_key, lane, priority, after_id, room)
    cross join lateral (
        select x.id, x.priority, x.status = 'PENDING' as was_pending
        from executions x
        where x.wait_reason = 'worker' and x.queue = slot.queue and x.serve_key = slot.serve_key and x.lane = slot.lane
            and x.priority = slot.priority and x.id > slot.after_id
        order by x.id
        limit slot.room
        for update skip locked
    ) e
    ) ranked
    where ranked.place <= ranked.room
    order by ranked.priority desc, ranked.id
    limit $8
),
claimed as (
    update executions e
    set status = 'IN_PROGRESS', wait_reason = null, wait_until = null,
        worker_id = $1, lease_token = gen_random_uuid(), lease_write = 0, claimed_at = now.now,
        started_at = coalesce(e.started_at, now.now),
        active_until = least(now.now + (e.active_timeout - e.active_time), e.deadline_at),
        attempt = e.attempt + 1, event_seq = e.event_seq + 1
    from picked, now
    where e.id = picked.id
    returning e.*, picked.was_pending
),
claim_events as (
    insert into events (execution_id, seq, at, kind, data)
    select id, event_seq, claimed_at, 'claimed', jsonb_build_object('attempt', attempt, 'worker_id', worker_id) from claimed
),
counts as (
    insert into execution_count_changes (tenant_id, definition_key, agent_key, day, status, n)
    select tenant_id, definition_key, agent_key, (created_at at time zone 'UTC')::date, s.status, sum(s.n)
    from claimed, (values ('PENDING'::execution_status, -1), ('IN_PROGRESS'::execution_status, 1)) as s (status, n)
    where was_pending
    group by 1, 2, 3, 4, 5
)
select
    c.id as "id!", c.tenant_id as "tenant_id!", c.definition_version_id as "definition_version_id!",
    c.agent_version_id as "agent_version_id!", c.queue as "queue!", c.serve_key as "serve_key!", c.priority as "priority!", c.lane as "lane!",
    c.lease_token as "lease_token!", c.attempt as "attempt!", c.created_at as "created_at!", c.claimed_at as "claimed_at!",
    c.active_until as "active_until!", c.deadline_at as "deadline_at!", c.wake_seq as "wake_seq!",
    c.transient_retries as "transient_retries!", c.tool_error_retries as "tool_error_retries!",
    c.llm_error_retries as "llm_error_retries!", c.cancel_requested_at, c.retry_of, c.forked_from, p.overrides::text as overrides, c.root_id, c.depth as "depth!", c.has_budget as "has_budget!", c.was_pending as "was_pending!",
    p.input::text as "input!", p.traceparent
from claimed c
join execution_payloads p on p.execution_id = c.id
