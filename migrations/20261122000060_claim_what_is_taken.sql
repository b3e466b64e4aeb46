-- A claim locks what it takes and nothing else: it used to lock the head of every tenant's line, so that with many tenants a claim of a
-- few wrote a lock for hundreds, and a second one at that moment found nothing. And a key of a concurrency limit for which nobody waits
-- is waited for by nobody. See docs/adr/0013-slots-and-fairness.md.

-- The next runnable executions in fair order: at most `room` leases of at most `candidates` executions looked at; one bounded index
-- scan per tenant that has work; tenants by what they used lately, within a tenant started before new, then by rank. Lanes of suspects
-- have a room of their own. What a concurrency limit holds back is parked and told with the keys it waits for.
--
-- known_*: tenants of which work was taken lately, and from where on they are looked at; gap_*: between which tenants others are
-- looked for, `max_found` in all; suspect_*: lanes with their room; used_*: what tenants used lately, `usual` what one execution uses.
--
-- It brings what its caller needs of the payloads. A statement in here sees what was committed while the call was under way, the query
-- around the call does not: one that joined the payloads itself lost what had been submitted in between, claimed and never told.
drop function longhaul_claim;
create function longhaul_claim(
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
    limits admission[];
    done int;
begin
    perform from workers w where w.id = worker and w.dead_at is null and w.expires_at > clock_timestamp() for key share;
    if not found then
        return;
    end if;

    -- Who is next, locked. What another claim has locked meanwhile is stepped over, not waited for.
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
    if ids is null then
        return;
    end if;

    if exists (select from limit_rules) then
        select array_agg(row(a.execution_id, a.keys, a.is_admitted)::admission) into limits from longhaul_admit(ids, room) a;
        return query
        select e, e.started_at is null, l.keys, null::json, null::json, null::text
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
    select c.execution, c.is_new, null::text[], p.overrides, p.input, p.traceparent
    -- By key, one after the other: what the planner believed of an empty table must not become a scan of a full one.
    from claimed c cross join lateral (
        select x.overrides, x.input, x.traceparent from execution_payloads x where x.execution_id = (c.execution).id limit 1
    ) p
    order by c.number;
    get diagnostics done = row_count;
    -- Nobody can have moved a locked row. Were it otherwise, its slots would be taken for nothing.
    if done <> coalesce(cardinality(places), 0) then
        raise exception 'of % locked executions % were found', cardinality(places), done using errcode = 'serialization_failure';
    end if;
end
$$;

-- Makes what is missing of these keys and their slots. In the order of keys, so that two that make the same wait for each other
-- and no more.
create or replace function longhaul_make_slots(rules uuid[], names text[], vals text[]) returns void
    language plpgsql volatile
    as $$
#variable_conflict use_column
declare
    k record;
begin
    insert into slot_keys (key, rule_id, value, used_at)
    select distinct asked.key, asked.rule_id, asked.value, longhaul_now()
    from unnest(rules, names, vals) as asked (rule_id, key, value)
    where not exists (select from slot_keys s where s.key = asked.key)
    order by asked.key
    on conflict do nothing;
    for k in
        select s.key, s.made, r.max
        from slot_keys s join limit_rules r on r.id = s.rule_id
        where s.key = any (names) and s.made < r.max
        order by s.key
        for no key update of s
    loop
        insert into slots (key, number) select k.key, n from generate_series(1, k.max) n on conflict do nothing;
        update slot_keys set made = greatest(k.made, k.max), used_at = longhaul_now() where key = k.key;
    end loop;
    -- Somebody who has its row uses it, too.
    update slot_keys s set used_at = longhaul_now()
    from (
        select u.key from slot_keys u
        where u.key = any (names) and u.used_at < longhaul_now() - interval '10 minutes'
        for no key update skip locked
    ) used
    where s.key = used.key;
end
$$;

-- Which of these executions, locked by the calling claim and given in fair order, may run as far as limits go; only those that have
-- limits are told. What cannot have its slots is parked. At most `room` are wanted: the others take nothing.
create or replace function longhaul_admit(candidates uuid[], room int) returns table (execution_id uuid, keys text[], is_admitted boolean)
    language plpgsql volatile
    as $$
#variable_conflict use_column
declare
    item record;
    ids uuid[];
    rules uuid[];
    names text[];
    vals text[];
    missing text;
    has_room boolean;
    seen int := 0;
    admitted int := 0;
begin
    select array_agg(l.execution_id), array_agg(l.rule_id), array_agg(l.key), array_agg(l.value)
    into ids, rules, names, vals
    from longhaul_limits_of(candidates) l;
    if ids is null then
        return;
    end if;
    perform longhaul_make_slots(rules, names, vals);
    for item in
        select e.id, e.tenant_id, e.priority, e.created_at, e.started_at, e.deadline_at, e.event_seq, c.place, needed.keys
        from unnest(candidates) with ordinality as c (id, place)
        join (
            select n.id, array_agg(n.key order by n.key) as keys from unnest(ids, names) as n (id, key) group by n.id
        ) needed on needed.id = c.id
        join executions e on e.id = c.id
        order by c.place
    loop
        has_room := admitted + (item.place - 1 - seen) < room;
        seen := seen + 1;
        missing := null;
        if exists (
            select from unnest(item.keys) as k (key)
            where not exists (select from slots s where s.key = k.key and s.execution_id = item.id)
        ) then
            -- Nobody overtakes a line.
            select w.key into missing from slot_waiters w where w.key = any (item.keys) limit 1;
            if missing is null and has_room then
                missing := longhaul_take_slots(item.id, item.tenant_id, item.keys);
            elsif missing is null then
                select k.key into missing from unnest(item.keys) as k (key)
                where not exists (select from slots s where s.key = k.key and s.execution_id is null)
                limit 1;
            end if;
        end if;
        if missing is not null then
            insert into parked (execution_id, tenant_id, wait_reason, wait_until)
            values (item.id, item.tenant_id, 'concurrency_limit', item.deadline_at)
            on conflict (execution_id) do update set wait_reason = excluded.wait_reason, wait_until = excluded.wait_until;
            insert into slot_waiters (execution_id, tenant_id, keys, key, is_new, rank, since)
            values (item.id, item.tenant_id, item.keys, missing, item.started_at is null,
                longhaul_claim_rank(item.created_at, item.priority), longhaul_now());
            insert into events (execution_id, seq, at, kind, data)
            values (item.id, item.event_seq + 1, longhaul_now(), 'parked', jsonb_build_object('wait_reason', 'concurrency_limit'));
            update executions
            set wait_reason = 'concurrency_limit', wait_until = null, event_seq = item.event_seq + 1, slot_keys = item.keys
            where id = item.id;
            return query select item.id, item.keys, false;
        elsif has_room then
            admitted := admitted + 1;
            return query select item.id, item.keys, true;
        end if;
    end loop;
end
$$;

-- Gives the free slots of these keys to those that wait for them and makes those runnable, at most `portion` in all. Returns them; and,
-- without an execution, the keys to whose lines somebody moved because another key was full: the caller asks for those again.
--
-- The key's row is had first, and every statement in here sees what was committed before that: of a slot that is freed and an
-- execution that is parked at the same time, whoever commits last is followed by a call of this that sees both.
create or replace function longhaul_hand_over(names text[], portion int) returns table (id uuid, queue text, moved_to text)
    language plpgsql volatile
    as $$
#variable_conflict use_column
declare
    name text;
    w slot_waiters;
    e executions;
    missing text;
    granted int := 0;
    passed uuid[];
begin
    for name in select distinct n.key from unnest(names) as n (key) order by 1 loop
        -- Whoever joins the line from now on looks after its own commit, and sees what was freed before this.
        continue when not exists (select from slot_waiters x where x.key = name);
        perform from slot_keys k where k.key = name for no key update;
        continue when not found;
        passed := '{}';
        loop
            exit when granted >= portion;
            exit when not exists (
                select from slots s join slot_keys k on k.key = s.key join limit_rules r on r.id = k.rule_id
                where s.key = name and s.execution_id is null and s.number <= r.max
            );
            -- The tenant that holds the fewest of them, then the one that used least lately; of its own, started before new.
            with recursive tenants (tenant_id) as (
                (select x.tenant_id from slot_waiters x where x.key = name order by x.tenant_id limit 1)
                union all
                select (
                    select x.tenant_id from slot_waiters x where x.key = name and x.tenant_id > t.tenant_id
                    order by x.tenant_id limit 1
                )
                from tenants t where t.tenant_id is not null
            ),
            some_tenants as materialized (
                select t.tenant_id from tenants t where t.tenant_id is not null limit 200
            )
            select head.* into w
            from some_tenants t
            cross join lateral (
                select * from slot_waiters x
                where x.key = name and x.tenant_id = t.tenant_id and x.execution_id <> all (passed)
                order by x.is_new, x.rank, x.execution_id
                limit 1
            ) head
            order by
                case when (select count(*) from some_tenants) > 1 then
                    (select count(*) from slots s where s.key = name and s.tenant_id = t.tenant_id and s.execution_id is not null)
                end,
                coalesce((
                    select u.tokens * power(0.5, greatest(extract(epoch from longhaul_now() - u.at), 0) / 300)
                    from tenant_usage u where u.tenant_id = t.tenant_id
                ), 0),
                head.is_new, head.rank, head.execution_id
            limit 1;
            exit when not found;
            select * into e from executions x
            where x.id = w.execution_id and x.wait_reason = 'concurrency_limit' and x.cancel_requested_at is null
            for no key update skip locked;
            if not found then
                -- Somebody else is about to end it.
                passed := passed || w.execution_id;
                continue;
            end if;
            missing := longhaul_take_slots(e.id, e.tenant_id, w.keys);
            if missing is null then
                perform longhaul_unpark(e.id);
                insert into events (execution_id, seq, at, kind, data)
                values (e.id, e.event_seq + 1, longhaul_now(), 'woken', jsonb_build_object('waited_for', 'concurrency_limit'));
                -- Takes it out of the line as well, by the trigger.
                update executions
                set wait_reason = 'worker', wait_until = null, wake_seq = e.wake_seq + 1, event_seq = e.event_seq + 1
                where id = e.id;
                granted := granted + 1;
                return query select e.id, e.queue, null::text;
            elsif missing = name then
                -- What was free is being taken.
                exit;
            else
                update slot_waiters set key = missing where execution_id = e.id;
                return query select null::uuid, null::text, missing;
            end if;
        end loop;
    end loop;
end
$$;
