-- The claim as one call of a few small statements whose plans a connection keeps: planning one large statement anew took most of a
-- claim's time, and a plan of it that was kept could have been made for tables that were empty then. Rows are found by their place
-- (ctid) once they are locked, so no plan can come to scan for them. See docs/adr/0013-slots-and-fairness.md.

-- Served claims by priority before there were shares. A binary of then still claims, by `executions_turn` and a sort.
drop index executions_claim;

-- Read in every statement of the hot path: a function in SQL is parsed and planned each time, this one once per connection.
create or replace function longhaul_now() returns timestamptz
    language plpgsql volatile parallel safe
    as $$
begin
    return clock_timestamp() + (select shift from clock);
end
$$;

-- Checked for every row, it locked the tenant's row in every submit. Tenants come with the key that submits, and are never deleted.
alter table executions drop constraint executions_tenant_id_fkey;

create type admission as (execution_id uuid, keys text[], is_admitted boolean);

-- The next runnable executions in fair order: at most `room` leases of at most `candidates` executions looked at; one bounded index
-- scan per tenant that has work; tenants by what they used lately, within a tenant started before new, then by rank. Lanes of suspects
-- have a room of their own. What a concurrency limit holds back is parked and told with the keys it waits for.
--
-- known_*: tenants of which work was taken lately, and from where on they are looked at; gap_*: between which tenants others are
-- looked for, `max_found` in all; suspect_*: lanes with their room; used_*: what tenants used lately, `usual` what one execution uses.
create function longhaul_claim(
    worker uuid, room int, candidates int, per_tenant bigint,
    known_queues text[], known_serves text[], known_tenants uuid[], known_ranks bigint[], known_ids uuid[],
    gap_queues text[], gap_serves text[], gap_aboves uuid[], gap_belows uuid[], max_found bigint,
    suspect_queues text[], suspect_serves text[], suspect_lanes smallint[], suspect_rooms int[],
    used_tenants uuid[], used_tokens float8[], usual float8
) returns table (execution executions, is_new boolean, refused_keys text[])
    language plpgsql volatile
    as $$
#variable_conflict use_variable
declare
    lease_start timestamptz := longhaul_now();
    places tid[];
    ids uuid[];
    news boolean[];
    limits admission[];
    done int;
begin
    perform from workers w where w.id = worker and w.dead_at is null and w.expires_at > clock_timestamp() for key share;
    if not found then
        return;
    end if;

    -- Who is next, locked.
    with line as materialized (
        select known.*
        from unnest(known_queues, known_serves, known_tenants, known_ranks, known_ids)
            as known (queue, serve_key, tenant_id, after_rank, after_id)
        union all
        (
            select gap.queue, gap.serve_key, found.tenant_id, -9223372036854775808, '00000000-0000-0000-0000-000000000000'::uuid
            from unnest(gap_queues, gap_serves, gap_aboves, gap_belows) as gap (queue, serve_key, above, below)
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
                select found.tenant_id from found
            ) found
            limit max_found
        )
    ),
    candidate as materialized (
        select e.* from line cross join (values (false), (true)) as half (is_new) cross join lateral (
            select x.ctid as place, x.id, x.tenant_id, x.lane, (x.started_at is null) as is_new,
                longhaul_claim_rank(x.created_at, x.priority) as rank, candidates as lane_room
            from executions x
            where x.wait_reason = 'worker' and x.queue = line.queue and x.serve_key = line.serve_key and x.lane = 0
                and x.tenant_id = line.tenant_id and (x.started_at is null) = half.is_new
                and (longhaul_claim_rank(x.created_at, x.priority), x.id) > (
                    -- What was started and came back may be older than what was taken last.
                    case when half.is_new then line.after_rank else -9223372036854775808 end,
                    case when half.is_new then line.after_id else '00000000-0000-0000-0000-000000000000'::uuid end
                )
            order by longhaul_claim_rank(x.created_at, x.priority), x.id
            limit per_tenant
            for update skip locked
        ) e
        union all
        select s.* from unnest(suspect_queues, suspect_serves, suspect_lanes, suspect_rooms) as suspect (queue, serve_key, lane, room)
        cross join lateral (
            select x.ctid, x.id, x.tenant_id, x.lane, (x.started_at is null),
                longhaul_claim_rank(x.created_at, x.priority), suspect.room
            from executions x
            where x.wait_reason = 'worker' and x.queue = suspect.queue and x.serve_key = suspect.serve_key
                and x.lane = suspect.lane
            order by x.tenant_id, (x.started_at is null), longhaul_claim_rank(x.created_at, x.priority), x.id
            limit suspect.room
            for update skip locked
        ) s
    ),
    picked as (
        select placed.* from (
            -- A lane's room is one, over all queues and serve keys together.
            select shared.*, row_number() over (partition by shared.lane order by share, shared.is_new, rank, shared.id) as place_in_lane
            from (
                select c.*, coalesce(used.tokens, 0)
                    + usual * row_number() over (partition by c.tenant_id order by c.is_new, c.rank, c.id) as share
                from candidate c
                left join unnest(used_tenants, used_tokens) as used (tenant_id, tokens) on used.tenant_id = c.tenant_id
            ) shared
        ) placed
        where placed.place_in_lane <= placed.lane_room
        order by share, placed.is_new, rank, placed.id
        limit candidates
    )
    select array_agg(p.place), array_agg(p.id), array_agg(p.is_new) into places, ids, news
    from (select picked.place, picked.id, picked.is_new from picked order by share, picked.is_new, rank, picked.id) p;
    if ids is null then
        return;
    end if;

    if exists (select from limit_rules) then
        select array_agg(row(a.execution_id, a.keys, a.is_admitted)::admission) into limits from longhaul_admit(ids, room) a;
        return query
        select e, e.started_at is null, l.keys
        from unnest(limits) l join executions e on e.id = l.execution_id
        where not l.is_admitted;
        select array_agg(t.place order by t.number), array_agg(t.id order by t.number), array_agg(t.is_new order by t.number)
        into places, ids, news
        from unnest(places, ids, news) with ordinality as t (place, id, is_new, number)
        where not exists (select from unnest(limits) l where l.execution_id = t.id and not l.is_admitted);
    end if;
    places := places[:room];

    return query
    with claimed as (
        update executions e
        set status = 'IN_PROGRESS', wait_reason = null, wait_until = null,
            worker_id = worker, lease_token = gen_random_uuid(), lease_write = 0, claimed_at = lease_start,
            started_at = coalesce(e.started_at, lease_start),
            active_until = least(lease_start + (e.active_timeout - e.active_time), e.deadline_at),
            attempt = e.attempt + 1, event_seq = e.event_seq + 1,
            slot_keys = coalesce((select l.keys from unnest(limits) l where l.execution_id = e.id), e.slot_keys)
        from unnest(places, news) with ordinality as t (place, is_new, number)
        where e.ctid = t.place
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
        from claimed c, (values ('PENDING'::execution_status, -1), ('IN_PROGRESS'::execution_status, 1)) as s (status, n)
        where c.is_new
        group by 1, 2, 3, 4, 5
    )
    select c.execution, c.is_new, null::text[] from claimed c order by c.number;
    get diagnostics done = row_count;
    -- Nobody can have moved a locked row. Were it otherwise, its slots would be taken for nothing.
    if done <> coalesce(cardinality(places), 0) then
        raise exception 'of % locked executions % were found', cardinality(places), done using errcode = 'serialization_failure';
    end if;
end
$$;
