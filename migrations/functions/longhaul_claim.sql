-- Claims the next runnable executions for a worker: at most `room`, among those that `scan` names. Its duties, each
-- with its test in tests/it:
--
-- * A dead worker claims nothing: its row is locked first (store/fences.rs).
-- * Each claimed execution gets a fresh lease token, its event and its count in one statement (store/audit.rs).
-- * Fair order: tenants by recent usage; within a tenant started before new, then by rank (store/fair_order.rs).
-- * Suspects have a room of their own (store/reaping.rs).
-- * Executions that a concurrency limit holds back are parked and returned with the keys they wait for; those that
--   cannot be decided at once stay as they are (store/slots.rs).
-- * No other claim waits: executions not taken are not locked, and locked ones are skipped (store/claims.rs).
-- * An execution submitted during the call is returned with its payload (store/claims.rs). A statement in here sees
--   rows committed while the call is under way, the query around the call does not: a join there would lose them.
-- * No plan depends on the size of a table when it was made (store/costs.rs).
--
-- Lock order: the worker's row (key share), executions, slots; the last two with `skip locked`.
create or replace function longhaul_claim(worker uuid, room int, scan claim_scan) returns table (
    execution executions, is_new boolean, refused_keys text[], overrides json, input json, traceparent text
)
    language plpgsql volatile
    as $$
#variable_conflict use_variable
declare
    lease_start timestamptz := longhaul_now();
    ids uuid[];
    has_limits boolean;
    -- True if children have a limit.
    limits_children boolean;
    limits admission[];
begin
    -- The rules of sessions and children cost other work nothing: the messages of sessions are in one queue, and
    -- children are looked for among the candidates.
    select exists (select from limit_rules where source not in ('session', 'sub_agent'))
        or exists (select from unnest(scan.gaps) as gap where gap.queue = 'interactive')
            and exists (select from executions x where x.wait_reason = 'worker' and x.queue = 'interactive'),
        exists (select from limit_rules where source = 'sub_agent')
    into has_limits, limits_children
    from workers w where w.id = worker and w.dead_at is null for key share;
    if not found then
        return;
    end if;

    ids := longhaul_fair_order(scan);
    if ids is null then
        return;
    end if;
    if has_limits or limits_children and exists (
        select from executions x where x.id = any (ids) and x.parent_id is not null
    ) then
        select array_agg(row(a.execution_id, a.keys, a.is_admitted)::admission) into limits
            from longhaul_admit(ids, room) a;
        return query
        select e, e.started_at is null, l.keys, null::json, null::json, null::text
        from unnest(limits) l join executions e on e.id = l.execution_id
        where not l.is_admitted;
        select array_agg(t.id order by t.number) into ids
        from unnest(ids) with ordinality as t (id, number)
        where not exists (select from unnest(limits) l where l.execution_id = t.id
            and l.is_admitted is not true);
    end if;

    return query
    with taken as materialized (
        select t.id, e.started_at is null as is_new, t.number
        from unnest(ids[:room]) with ordinality as t (id, number) join executions e on e.id = t.id
    ),
    claimed as (
        update executions e
        set status = 'IN_PROGRESS', wait_reason = null, wait_until = null,
            worker_id = worker, lease_token = gen_random_uuid(), lease_write = 0, claimed_at = lease_start,
            started_at = coalesce(e.started_at, lease_start),
            active_until = least(lease_start + (e.active_timeout - e.active_time), e.deadline_at),
            attempt = e.attempt + 1, event_seq = e.event_seq + 1,
            slot_keys = coalesce((select l.keys from unnest(limits) l where l.execution_id = e.id), e.slot_keys)
        from taken t
        where e.id = t.id
        returning e as execution, t.is_new, t.number
    ),
    claim_events as (
        insert into events (execution_id, seq, at, kind, data)
        select (c.execution).id, (c.execution).event_seq, lease_start, 'claimed',
            jsonb_build_object('attempt', (c.execution).attempt, 'worker_id', worker)
        from claimed c
    ),
    counts as (
        insert into execution_count_changes (tenant_id, definition_key, agent_key, day, status, n)
        select (c.execution).tenant_id, (c.execution).definition_key, (c.execution).agent_key,
            ((c.execution).created_at at time zone 'UTC')::date, s.status, sum(s.n)
        from claimed c, (values ('PENDING'::execution_status, -1),
            ('IN_PROGRESS'::execution_status, 1)) as s (status, n)
        where c.is_new
        group by 1, 2, 3, 4, 5
    )
    select c.execution, c.is_new, null::text[], p.overrides, p.input, p.traceparent
    -- By key, one after the other: a plan made for an empty table must not become a scan of a full one.
    from claimed c cross join lateral (
        select x.overrides, x.input, x.traceparent from execution_payloads x
            where x.execution_id = (c.execution).id limit 1
    ) p
    order by c.number;
end
$$;
