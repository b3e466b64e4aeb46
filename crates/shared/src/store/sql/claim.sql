-- Takes the next runnable executions in fair order (docs/adr/0013-slots-and-fairness.md): one bounded index scan per tenant that has
-- work; tenants by what they used lately, within a tenant started before new, then by rank. Lanes of suspects have a room of their
-- own. What a concurrency limit holds back is parked here and told as refused.
with me as materialized (
    select id from workers where id = $1 and dead_at is null and expires_at > clock_timestamp() for key share
),
now as materialized (
    select longhaul_now() as now from me
),
-- Tenants of which work was taken lately are looked at from there on; the others are found by a look into each gap between them.
line as materialized (
    select known.* from me, unnest($2::text[], $3::text[], $4::uuid[], $5::bigint[], $6::uuid[])
        as known (queue, serve_key, tenant_id, after_rank, after_id)
    union all
    (
        select gap.queue, gap.serve_key, found.tenant_id, -9223372036854775808, '00000000-0000-0000-0000-000000000000'::uuid
        from me, unnest($7::text[], $8::text[], $9::uuid[], $10::uuid[]) as gap (queue, serve_key, above, below)
        cross join lateral (
            with recursive found (tenant_id) as (
                (
                    select x.tenant_id from executions x
                    where x.wait_reason = 'worker' and x.queue = gap.queue and x.serve_key = gap.serve_key and x.lane = 0
                        and x.tenant_id > gap.above and x.tenant_id < gap.below
                    order by x.tenant_id, (x.started_at is null), longhaul_claim_rank(x.created_at, x.priority), x.id
                    limit 1
                )
                union all
                select next.tenant_id from found cross join lateral (
                    select x.tenant_id from executions x
                    where x.wait_reason = 'worker' and x.queue = gap.queue and x.serve_key = gap.serve_key and x.lane = 0
                        and x.tenant_id > found.tenant_id and x.tenant_id < gap.below
                    order by x.tenant_id, (x.started_at is null), longhaul_claim_rank(x.created_at, x.priority), x.id
                    limit 1
                ) next
            )
            select tenant_id from found
        ) found
        limit $11
    )
),
candidates as materialized (
    select e.* from line cross join (values (false), (true)) as half (is_new) cross join lateral (
        select x.id, x.tenant_id, x.lane, x.status = 'PENDING' as was_pending, (x.started_at is null) as is_new,
            longhaul_claim_rank(x.created_at, x.priority) as rank, $12::int as room
        from executions x
        where x.wait_reason = 'worker' and x.queue = line.queue and x.serve_key = line.serve_key and x.lane = 0
            and x.tenant_id = line.tenant_id and (x.started_at is null) = half.is_new
            and (longhaul_claim_rank(x.created_at, x.priority), x.id) > (
                -- What was started and came back may be older than what was taken last.
                case when half.is_new then line.after_rank else -9223372036854775808 end,
                case when half.is_new then line.after_id else '00000000-0000-0000-0000-000000000000'::uuid end
            )
        order by longhaul_claim_rank(x.created_at, x.priority), x.id
        limit $13
        for update skip locked
    ) e
    union all
    select s.* from me, unnest($14::text[], $15::text[], $16::smallint[], $17::int[]) as suspects (queue, serve_key, lane, room)
    cross join lateral (
        select x.id, x.tenant_id, x.lane, x.status = 'PENDING', (x.started_at is null),
            longhaul_claim_rank(x.created_at, x.priority), suspects.room
        from executions x
        where x.wait_reason = 'worker' and x.queue = suspects.queue and x.serve_key = suspects.serve_key
            and x.lane = suspects.lane
        order by x.tenant_id, (x.started_at is null), longhaul_claim_rank(x.created_at, x.priority), x.id
        limit suspects.room
        for update skip locked
    ) s
),
picked as materialized (
    select placed.id, placed.was_pending, placed.is_new, placed.rank,
        row_number() over (order by placed.share, placed.is_new, placed.rank, placed.id) as place
    from (
        -- A lane's room is one, over all queues and serve keys together.
        select shared.*, row_number() over (partition by lane order by share, is_new, rank, id) as place_in_lane
        from (
            select c.*, coalesce(usage.tokens, 0)
                + $20::float8 * row_number() over (partition by c.tenant_id order by c.is_new, c.rank, c.id) as share
            from candidates c
            left join unnest($18::uuid[], $19::float8[]) as usage (tenant_id, tokens) on usage.tenant_id = c.tenant_id
        ) shared
    ) placed
    where placed.place_in_lane <= placed.room
    order by place
    limit $12
),
limited as materialized (
    select * from longhaul_admit((select array_agg(id order by place) from picked), $21)
    where (select exists (select from limit_rules))
),
taken as (
    select picked.*, limited.keys
    from picked left join limited on limited.execution_id = picked.id
    where limited.is_admitted is not false
    order by picked.place
    limit $21
),
claimed as (
    update executions e
    set status = 'IN_PROGRESS', wait_reason = null, wait_until = null,
        worker_id = $1, lease_token = gen_random_uuid(), lease_write = 0, claimed_at = now.now,
        started_at = coalesce(e.started_at, now.now),
        active_until = least(now.now + (e.active_timeout - e.active_time), e.deadline_at),
        attempt = e.attempt + 1, event_seq = e.event_seq + 1, slot_keys = coalesce(taken.keys, e.slot_keys)
    from taken, now
    -- The array says that these are few, whatever the planner believes of the limits above: their rows are found by key.
    where e.id = taken.id and e.id = any (array(select id from picked))
    returning e.*, taken.was_pending, taken.is_new, taken.rank, taken.place, false as is_refused
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
    c.agent_version_id as "agent_version_id!", c.queue as "queue!", c.serve_key as "serve_key!", c.lane as "lane!",
    coalesce(c.lease_token, c.id) as "lease_token!", c.attempt as "attempt!", c.created_at as "created_at!",
    coalesce(c.claimed_at, c.created_at) as "claimed_at!", coalesce(c.active_until, c.deadline_at) as "active_until!",
    c.deadline_at as "deadline_at!", c.wake_seq as "wake_seq!",
    c.transient_retries as "transient_retries!", c.tool_error_retries as "tool_error_retries!",
    c.llm_error_retries as "llm_error_retries!", c.cancel_requested_at, c.retry_of, c.forked_from, p.overrides::text as overrides, c.root_id, c.depth as "depth!", c.has_budget as "has_budget!", c.was_pending as "was_pending!",
    c.input_tokens + c.output_tokens as "tokens!", c.is_new as "is_new!", c.rank as "rank!", c.is_refused as "is_refused!",
    refused.keys as refused_keys, p.input::text as "input!", p.traceparent
from (
    select * from claimed
    union all
    select e.*, picked.was_pending, picked.is_new, picked.rank, picked.place, true
    from limited join executions e on e.id = limited.execution_id join picked on picked.id = e.id
    where not limited.is_admitted and e.id = any (array(select id from picked))
) c
join execution_payloads p on p.execution_id = c.id and p.execution_id = any (array(select id from picked))
left join limited refused on refused.execution_id = c.id and c.is_refused
order by c.place
