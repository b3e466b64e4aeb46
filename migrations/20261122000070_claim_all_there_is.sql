-- A claim that finds fewer executions than it has room for takes them all and weighs nothing: who is next is a question of whom to leave out.
-- That is every claim of a fleet that keeps up, and the statement that answers the question costs as much to begin as all the others
-- together. See docs/adr/0022-what-one-execution-waits-for.md.

-- Who is next of what these lines, gaps and suspects hold, locked: at most `candidates`. What another claim has locked meanwhile is stepped
-- over, not waited for. The parameters are those of `longhaul_claim`.
create function longhaul_weigh(
    candidates int, per_tenant bigint,
    known_queues text[], known_serves text[], known_tenants uuid[], known_ranks bigint[], known_ids uuid[],
    gap_queues text[], gap_serves text[], gap_aboves uuid[], gap_belows uuid[], max_found bigint,
    suspect_queues text[], suspect_serves text[], suspect_lanes smallint[], suspect_rooms int[],
    used_tenants uuid[], used_tokens float8[], usual float8,
    out places tid[], out ids uuid[], out news boolean[]
)
    language plpgsql volatile
    as $$
#variable_conflict use_variable
begin
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
    -- Of each line, how many would be next: seen without locks, so that what is not taken is in nobody's way. One line alone needs no
    -- such look: all that is taken is its.
    wanted as materialized (
        select line.*, half.is_new, candidates::bigint as n
        from line cross join (values (false), (true)) as half (is_new)
        where (select count(*) from line) = 1
        union all
        select next.queue, next.serve_key, next.tenant_id, next.after_rank, next.after_id, next.is_new, count(*)
        from (
            select line.*, half.is_new
            from line cross join (values (false), (true)) as half (is_new) cross join lateral (
                select longhaul_claim_rank(x.created_at, x.priority) as rank, x.id
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
            ) head
            left join unnest(used_tenants, used_tokens) as used (tenant_id, tokens) on used.tenant_id = line.tenant_id
            where (select count(*) from line) > 1
            order by coalesce(used.tokens, 0)
                + usual * row_number() over (partition by line.tenant_id order by half.is_new, head.rank, head.id),
                half.is_new, head.rank, head.id
            limit candidates
        ) next
        group by next.queue, next.serve_key, next.tenant_id, next.after_rank, next.after_id, next.is_new
    ),
    candidate as materialized (
        select e.* from wanted cross join lateral (
            select x.ctid as place, x.id, x.tenant_id, x.lane, (x.started_at is null) as is_new,
                longhaul_claim_rank(x.created_at, x.priority) as rank, candidates as lane_room
            from executions x
            where x.wait_reason = 'worker' and x.queue = wanted.queue and x.serve_key = wanted.serve_key and x.lane = 0
                and x.tenant_id = wanted.tenant_id and (x.started_at is null) = wanted.is_new
                and (longhaul_claim_rank(x.created_at, x.priority), x.id) > (
                    case when wanted.is_new then wanted.after_rank else -9223372036854775808 end,
                    case when wanted.is_new then wanted.after_id else '00000000-0000-0000-0000-000000000000'::uuid end
                )
            order by longhaul_claim_rank(x.created_at, x.priority), x.id
            limit wanted.n
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
end
$$;

-- The next runnable executions: at most `room` leases of at most `candidates` executions looked at. When there are more than that, in fair order:
-- one bounded index scan per tenant that has work; tenants by what they used lately, within a tenant started before new, then by rank.
-- Lanes of suspects have a room of their own. What a concurrency limit holds back is parked and told with the keys it waits for.
--
-- known_*: tenants of which work was taken lately, and from where on they are looked at; gap_*: between which tenants others are
-- looked for, `max_found` in all; suspect_*: lanes with their room; used_*: what tenants used lately, `usual` what one execution uses.
--
-- It brings what its caller needs of the payloads. A statement in here sees what was committed while the call was under way, the query
-- around the call does not: one that joined the payloads itself lost what had been submitted in between, claimed and never told.
create or replace function longhaul_claim(
    worker uuid, room int, candidates int, per_tenant bigint,
    known_queues text[], known_serves text[], known_tenants uuid[], known_ranks bigint[], known_ids uuid[],
    gap_queues text[], gap_serves text[], gap_aboves uuid[], gap_belows uuid[], max_found bigint,
    suspect_queues text[], suspect_serves text[], suspect_lanes smallint[], suspect_rooms int[],
    used_tenants uuid[], used_tokens float8[], usual float8
) returns table (
    execution executions, is_new boolean, refused_keys text[], overrides json, input json, traceparent text
)
    language plpgsql volatile
    as $$
#variable_conflict use_variable
declare
    lease_start timestamptz := longhaul_now();
    places tid[];
    ids uuid[];
    news boolean[];
    is_choosy boolean := true;
    limits admission[];
    done int;
begin
    perform from workers w where w.id = worker and w.dead_at is null and w.expires_at > clock_timestamp() for key share;
    if not found then
        return;
    end if;

    -- All there is, as far as there is room for it and one more. Not where a full batch was taken lately, so that there is most likely more. Seen
    -- without locks: what is not taken is in nobody's way.
    if cardinality(known_tenants) = 0 then
        select array_agg(x.place order by x.is_new, x.rank, x.id), array_agg(x.is_new order by x.is_new, x.rank, x.id),
            count(*) > least(room, candidates) or bool_or(x.lane > 0) or exists (select from limit_rules)
        into places, news, is_choosy
        from unnest(gap_queues, gap_serves) as gap (queue, serve_key) cross join lateral (
            select x.ctid as place, x.id, x.lane, x.started_at is null as is_new, longhaul_claim_rank(x.created_at, x.priority) as rank
            from executions x
            where x.wait_reason = 'worker' and x.queue = gap.queue and x.serve_key = gap.serve_key
            limit least(room, candidates) + 1
        ) x;
        if places is null then
            return;
        end if;
    end if;

    if is_choosy then
        select w.places, w.ids, w.news into places, ids, news
        from longhaul_weigh(
            candidates, per_tenant, known_queues, known_serves, known_tenants, known_ranks, known_ids,
            gap_queues, gap_serves, gap_aboves, gap_belows, max_found,
            suspect_queues, suspect_serves, suspect_lanes, suspect_rooms, used_tenants, used_tokens, usual
        ) w;
        if ids is null then
            return;
        end if;
        if exists (select from limit_rules) then
            select array_agg(row(a.execution_id, a.keys, a.is_admitted)::admission) into limits from longhaul_admit(ids, room) a;
            return query
            select e, e.started_at is null, l.keys, null::json, null::json, null::text
            from unnest(limits) l join executions e on e.id = l.execution_id
            where not l.is_admitted;
            select array_agg(t.place order by t.number), array_agg(t.is_new order by t.number) into places, news
            from unnest(places, ids, news) with ordinality as t (place, id, is_new, number)
            where not exists (select from unnest(limits) l where l.execution_id = t.id and not l.is_admitted);
        end if;
    end if;
    places := places[:room];

    return query
    with taken as materialized (
        -- Locked before, or not by anybody else. Asked so that no index answers: rows are looked for by their places alone, whatever the planner
        -- believed when the table was empty.
        select t.place, t.is_new, t.number
        from unnest(places, news) with ordinality as t (place, is_new, number) join executions e on e.ctid = t.place
        where e.wait_reason is not distinct from 'worker'
        for update of e skip locked
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
    select c.execution, c.is_new, null::text[], p.overrides, p.input, p.traceparent
    -- By key, one after the other: what the planner believed of an empty table must not become a scan of a full one.
    from claimed c cross join lateral (
        select x.overrides, x.input, x.traceparent from execution_payloads x where x.execution_id = (c.execution).id limit 1
    ) p
    order by c.number;
    get diagnostics done = row_count;
    -- Nobody can have moved a row that was locked before. Were it otherwise, its slots would be taken for nothing.
    if is_choosy and done <> coalesce(cardinality(places), 0) then
        raise exception 'of % locked executions % were found', cardinality(places), done using errcode = 'serialization_failure';
    end if;
end
$$;
