-- Concurrency limits as slot rows (core-rules 12), and what claims need to share between tenants (core-rules 11). See
-- docs/adr/0013-slots-and-fairness.md.

-- The keys whose slots it holds, waits for or held last; null for executions that never met a limit. Changes only where
-- `wait_reason` does.
alter table executions add column slot_keys text[];

-- Who says how many ------------------------------------------------------------------------------------------------------------

create table limit_rules (
    id uuid primary key default gen_random_uuid(),
    -- By a definition or an agent, for its own executions; or by an operator.
    source text not null check (source in ('definition', 'agent', 'operator')),
    -- Whose definition or agent it is, null: shared; of an operator's: whose executions it is about, null: everybody's.
    tenant_id uuid references tenants,
    -- The key of the definition or agent; '' of an operator's.
    subject text not null default '',
    -- What executions are grouped by: tenant, definition, agent, or metadata.<path>.
    expression text not null check (expression in ('tenant', 'definition', 'agent') or expression ~ '^metadata\..'),
    -- Only this value; null: each value by itself.
    value text,
    max int not null check (max between 0 and 10000),
    changed_at timestamptz not null,
    constraint limit_rules_once unique nulls not distinct (source, subject, expression, tenant_id, value)
);

-- A key is a value of a rule that some execution had. `made` slots of it exist.
create table slot_keys (
    key text primary key,
    rule_id uuid not null references limit_rules on delete cascade,
    value text not null,
    made int not null default 0,
    used_at timestamptz not null
) with (fillfactor = 70);
create index slot_keys_rule on slot_keys (rule_id);

create table slots (
    key text not null references slot_keys on delete cascade,
    number int not null,
    execution_id uuid,
    tenant_id uuid,
    since timestamptz,
    primary key (key, number)
) with (fillfactor = 70);
create index slots_free on slots (key, number) where execution_id is null;
create index slots_held on slots (execution_id) where execution_id is not null;
create index slots_shares on slots (key, tenant_id) where execution_id is not null;

-- Who waits, each in the line of one key. A row lives as long as the execution waits with `concurrency_limit`.
create table slot_waiters (
    execution_id uuid primary key,
    tenant_id uuid not null,
    -- All it needs, in order; and the one that was full.
    keys text[] not null,
    key text not null,
    is_new boolean not null,
    rank bigint not null,
    since timestamptz not null
);
create index slot_waiters_line on slot_waiters (key, tenant_id, is_new, rank, execution_id);

-- What tenants used lately, in tokens, halved every five minutes. Workers add to it every few seconds.
create table tenant_usage (
    tenant_id uuid primary key,
    tokens float8 not null,
    at timestamptz not null
) with (fillfactor = 50);

-- Fair order ---------------------------------------------------------------------------------------------------------------------

-- When an execution's turn is among its tenant's: the time of its submit, five minutes earlier per level of priority. It never
-- changes, so waiting makes up for priority.
create function longhaul_claim_rank(created_at timestamptz, priority smallint) returns bigint
    language sql immutable parallel safe
    as $$
        select (extract(epoch from created_at - timestamptz '2020-01-01 00:00:00+00') * 1000)::bigint - priority * 300000::bigint
    $$;

-- Beside `executions_claim`, by which the previous release claims; that one goes in a later one.
create index executions_turn on executions (
    queue, serve_key, lane, tenant_id, (started_at is null), longhaul_claim_rank(created_at, priority), id
) where wait_reason = 'worker';

-- Limits of definitions and agents -------------------------------------------------------------------------------------------------

-- What the newest version says holds for all: written down whenever a version comes or goes.
create function longhaul_spec_limits() returns trigger
    language plpgsql
    as $$
declare
    kind text := case tg_table_name when 'definition_versions' then 'definition' else 'agent' end;
    wanted json;
begin
    if kind = 'definition' then
        select v.spec -> 'concurrency' into wanted from definition_versions v
        where v.key = new.key and v.tenant_id is not distinct from new.tenant_id and v.removed_at is null
        order by v.version desc limit 1;
    else
        select v.spec -> 'concurrency' into wanted from agent_versions v
        where v.key = new.key and v.tenant_id is not distinct from new.tenant_id and v.removed_at is null
        order by v.version desc limit 1;
    end if;
    if wanted is null or json_typeof(wanted) <> 'array' then
        wanted := '[]';
    end if;
    delete from limit_rules r
    where r.source = kind and r.subject = new.key and r.tenant_id is not distinct from new.tenant_id
        and r.expression not in (select w ->> 'key' from json_array_elements(wanted) w);
    insert into limit_rules as r (source, tenant_id, subject, expression, max, changed_at)
    select distinct on (w ->> 'key') kind, new.tenant_id, new.key, w ->> 'key', (w ->> 'limit')::int, longhaul_now()
    from json_array_elements(wanted) w
    on conflict on constraint limit_rules_once do update set max = excluded.max, changed_at = excluded.changed_at
    where r.max <> excluded.max;
    return null;
end
$$;
create trigger definition_versions_limits after insert or update of removed_at on definition_versions
    for each row execute function longhaul_spec_limits();
create trigger agent_versions_limits after insert or update of removed_at on agent_versions
    for each row execute function longhaul_spec_limits();

-- Slots --------------------------------------------------------------------------------------------------------------------------

create function longhaul_limit_value(expression text, tenant uuid, definition text, agent text, metadata jsonb) returns text
    language sql immutable parallel safe
    as $$
        select case expression
            when 'tenant' then tenant::text
            when 'definition' then definition
            when 'agent' then agent
            else metadata #>> string_to_array(substr(expression, 10), '.')
        end
    $$;

-- The keys these executions need slots of. A value that is longer than a key may be is told by its hash.
create function longhaul_limits_of(ids uuid[]) returns table (execution_id uuid, rule_id uuid, key text, value text)
    language sql stable
    as $$
        select needed.id, needed.rule_id, needed.rule_id || '=' || told.value, told.value
        from (
            select e.id, r.id as rule_id, r.value as only_value,
                longhaul_limit_value(r.expression, e.tenant_id, e.definition_key, e.agent_key, e.metadata) as value
            from executions e
            join limit_rules r on r.source = 'definition' and r.subject = e.definition_key
                and r.tenant_id is not distinct from (select v.tenant_id from definition_versions v where v.id = e.definition_version_id)
            where e.id = any (ids)
            union all
            select e.id, r.id, r.value, longhaul_limit_value(r.expression, e.tenant_id, e.definition_key, e.agent_key, e.metadata)
            from executions e
            join limit_rules r on r.source = 'agent' and r.subject = e.agent_key
                and r.tenant_id is not distinct from (select v.tenant_id from agent_versions v where v.id = e.agent_version_id)
            where e.id = any (ids)
            union all
            select e.id, r.id, r.value, longhaul_limit_value(r.expression, e.tenant_id, e.definition_key, e.agent_key, e.metadata)
            from executions e
            join limit_rules r on r.source = 'operator' and r.subject = '' and (r.tenant_id is null or r.tenant_id = e.tenant_id)
            where e.id = any (ids)
        ) needed
        cross join lateral (
            select case when length(needed.value) <= 200 then needed.value
                else encode(sha256(convert_to(needed.value, 'UTF8')), 'hex') end as value
        ) told
        where needed.value is not null and (needed.only_value is null or needed.only_value = needed.value)
    $$;

-- Makes what is missing of these keys and their slots. In the order of keys, so that two that make the same wait for each other
-- and no more.
create function longhaul_make_slots(rules uuid[], names text[], vals text[]) returns void
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
        where s.key = any (names) and (s.made < r.max or s.used_at < longhaul_now() - interval '10 minutes')
        order by s.key
        for no key update of s
    loop
        if k.made < k.max then
            insert into slots (key, number) select k.key, n from generate_series(1, k.max) n on conflict do nothing;
        end if;
        update slot_keys set made = greatest(k.made, k.max), used_at = longhaul_now() where key = k.key;
    end loop;
end
$$;

-- Takes a slot of each of these keys, or none. Returns the first key that has none free, null when all were had.
create function longhaul_take_slots(execution uuid, tenant uuid, names text[]) returns text
    language plpgsql volatile
    as $$
#variable_conflict use_column
declare
    name text;
    place int;
    places int[] := '{}';
begin
    foreach name in array names loop
        place := null;
        if not exists (select from slots s where s.key = name and s.execution_id = execution) then
            select s.number into place
            from slots s join slot_keys k on k.key = s.key join limit_rules r on r.id = k.rule_id
            where s.key = name and s.execution_id is null and s.number <= r.max
            order by s.number
            limit 1
            for update of s skip locked;
            if not found then
                return name;
            end if;
        end if;
        places := places || place;
    end loop;
    update slots s
    set execution_id = execution, tenant_id = tenant, since = longhaul_now()
    from unnest(names, places) as mine (key, number)
    where s.key = mine.key and s.number = mine.number;
    return null;
end
$$;

-- Which of these executions, locked by the calling claim and given in fair order, may run as far as limits go; only those that have
-- limits are told. What cannot have its slots is parked. At most `room` are wanted: the others take nothing.
create function longhaul_admit(candidates uuid[], room int) returns table (execution_id uuid, keys text[], is_admitted boolean)
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
            values (item.id, item.tenant_id, 'concurrency_limit', item.deadline_at);
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

-- An execution that no worker holds any more has no slots, unless one was just handed to it so that it can run; one that does not
-- wait for a slot stands in no line.
create function longhaul_clear_slots() returns trigger
    language plpgsql
    as $$
declare
    mine record;
begin
    delete from slot_waiters where execution_id = new.id and new.wait_reason is distinct from 'concurrency_limit';
    if old.worker_id is not null or new.wait_reason is distinct from 'worker' then
        delete from slots s using slot_keys k, limit_rules r
        where s.execution_id = new.id and k.key = s.key and r.id = k.rule_id and s.number > r.max;
        -- After that one, in a snapshot of its own: a slot over the limit may just have been moved below it.
        for mine in
            select s.key, s.number, r.max
            from slots s join slot_keys k on k.key = s.key join limit_rules r on r.id = k.rule_id
            where s.execution_id = new.id
            order by s.key
            for update of s
        loop
            -- Who holds a slot over a limit that was made smaller moves into this one, so that it is not free.
            with over as materialized (
                select s.* from slots s
                where s.key = mine.key and s.number > mine.max and s.execution_id is not null
                limit 1
                for update skip locked
            ),
            gone as (
                delete from slots s using over where s.key = over.key and s.number = over.number
            )
            update slots s
            set execution_id = (select over.execution_id from over), tenant_id = (select over.tenant_id from over),
                since = (select over.since from over)
            where s.key = mine.key and s.number = mine.number;
        end loop;
    end if;
    return null;
end
$$;
create trigger executions_slots after update of worker_id, wait_reason on executions
    for each row
    when (
        new.slot_keys is not null and new.worker_id is null
        and (old.worker_id is not null or new.wait_reason is distinct from old.wait_reason)
    )
    execute function longhaul_clear_slots();

-- A smaller limit takes away what is free of it, and what is held stays held, in the lower slots as far as they are free. A larger one
-- makes more.
create function longhaul_resize() returns trigger
    language plpgsql
    as $$
declare
    over slots;
    place int;
begin
    for over in
        select s.* from slots s join slot_keys k on k.key = s.key
        where k.rule_id = new.id and s.number > new.max and s.execution_id is not null
        order by s.key, s.number
        for update of s skip locked
    loop
        select s.number into place from slots s
        where s.key = over.key and s.execution_id is null and s.number <= new.max
        order by s.number limit 1
        for update skip locked;
        continue when not found;
        update slots s set execution_id = over.execution_id, tenant_id = over.tenant_id, since = over.since
        where s.key = over.key and s.number = place;
        delete from slots s where s.key = over.key and s.number = over.number;
    end loop;
    delete from slots s using slot_keys k
    where k.rule_id = new.id and s.key = k.key and s.number > new.max and s.execution_id is null;
    update slot_keys set made = least(made, new.max) where rule_id = new.id and made > new.max;
    perform longhaul_make_slots('{}', (select array_agg(key) from slot_keys where rule_id = new.id), '{}');
    return null;
end
$$;
create trigger limit_rules_resize after update of max on limit_rules
    for each row when (old.max <> new.max) execute function longhaul_resize();

-- Gives the free slots of these keys to those that wait for them and makes those runnable, at most `portion` in all. Returns them; and,
-- without an execution, the keys to whose lines somebody moved because another key was full: the caller asks for those again.
--
-- The key's row is had first, and every statement in here sees what was committed before that: of a slot that is freed and an
-- execution that is parked at the same time, whoever commits last is followed by a call of this that sees both.
create function longhaul_hand_over(names text[], portion int) returns table (id uuid, queue text, moved_to text)
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
