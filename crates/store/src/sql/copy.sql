-- Inserts a new execution that continues another's journal: a person's retry of a FAILED one (with the prefix of
-- the journal if $14), or, if $17 is set, a fork of any execution before that step. Messages live with their
-- execution, so the prefix is copied with its messages (core-rules 14). If the idempotency key is taken, nothing
-- is inserted.
--
-- $25 releases a quarantined execution (docs/adr/0019-quarantine.md): `canary` if its group is shut, `manual` if
-- it is shut or releasing, `rest` as part of a portion. The same statement sets the link from the quarantined
-- execution, so that none is released twice. An execution that killed workers starts as a suspect, a canary
-- alone.
with now as materialized (
    select longhaul_now() as now
),
asked as materialized (
    select e.*, p.input, p.overrides
    from executions e
    join execution_payloads p on p.execution_id = e.id
    where e.id = $3 and e.tenant_id = $2 and (e.status = 'FAILED' or $17::int is not null) and p.erased_at is null
),
-- Each release locks the group's row first, so two releases run one after the other.
opened as (
    insert into quarantine_groups as g (
        tenant_id, definition_version_id, agent_version_id, definition_key, agent_key, queues, state, died_builds,
        canary, changed_at
    )
    select tenant_id, definition_version_id, agent_version_id, definition_key, agent_key, array[queue], 'canary', '{}',
        $1, now
    from asked, now
    where $25::text in ('canary', 'manual')
    on conflict (tenant_id, definition_version_id, agent_version_id) do update
    set state = 'canary', canary = excluded.canary, changed_at = excluded.changed_at,
        -- A manual release says that the cause is gone, whatever the build.
        died_builds = case when $25 = 'manual' then '{}' else g.died_builds end
    where g.state = 'shut' or ($25 = 'manual' and g.state = 'releasing')
    returning g.tenant_id
),
released as (
    update quarantine q
    set released_as = $1, released_at = now.now
    from now
    where q.execution_id = $3 and q.tenant_id = $2 and q.released_as is null and $17::int is null
        and ($25::text is null or (q.withdrawn_at is null and q.deadline_at > now.now))
        and ($25::text is null or $25 = 'rest' or exists (select from opened))
    returning q.execution_id
),
origin as materialized (
    select asked.* from asked where $25::text is null or exists (select from released)
),
keyed as (
    insert into idempotency_keys (tenant_id, key, execution_id, request_hash, created_at)
    select tenant_id, $12::text, $1, $13::bytea, now from origin, now where $12 is not null
    on conflict (tenant_id, key) do nothing
    returning execution_id
),
inserted as (
    insert into executions (
        id, tenant_id, definition_key, definition_version_id, agent_key, agent_version_id, queue, serve_key, priority,
        metadata, created_at, deadline_at, active_timeout, retry_of, forked_from, forked_before, submitted_by,
        wait_reason,
        event_seq, has_budget, lane, crash_count
    )
    select
        $1, tenant_id, definition_key, $4, $16, $5, queue, $6, priority, metadata, now,
        now + $7::float8 * interval '1 second',
            $9::float8 * interval '1 second', 
        case when $17::int is null then id end, case when $17::int is not null then id end, $17::int,
        -- A release keeps the submitter, who therefore still cannot decide about the execution's own approvals.
        coalesce($10::uuid, case when $25::text is not null then submitted_by end), 'worker', 1,
        has_budget or $21::text is not null,
        case
            when $25 in ('canary', 'manual') then 2
            when failure_code = 'crash_loop' and $17::int is null then 1
            else 0
        end,
        case when failure_code = 'crash_loop' and $17::int is null then 2 else 0 end
    from origin, now
    where $12 is null or exists (select from keyed)
    on conflict (id) do nothing
    returning id, tenant_id, definition_key, agent_key, retry_of, forked_from, forked_before, created_at, deadline_at
),
payload as (
    insert into execution_payloads (execution_id, input, overrides, traceparent)
    select inserted.id, coalesce($18::text::json, origin.input), coalesce($19::text::json, origin.overrides), $11::text
    from inserted, origin
),
caps as (
    -- A new budget: what the origin spent does not count.
    insert into budgets (root_id, tenant_id, max_cost, max_tokens, max_calls, on_exhausted)
    select id, tenant_id, $22::bigint, $23::bigint, $24::bigint, $21::text from inserted where $21 is not null
    union all
    select inserted.id, b.tenant_id, b.max_cost, b.max_tokens, b.max_calls, b.on_exhausted
    from inserted, origin join budgets b on b.root_id = coalesce(origin.root_id, origin.id)
    where $21 is null and $25::text is null
    union all
    -- A release adds no money: it gets what is left.
    select inserted.id, b.tenant_id,
        case when b.max_cost is not null then greatest(b.max_cost - b.spent_cost - b.reserved_cost, 0) end,
        case when b.max_tokens is not null then greatest(b.max_tokens - b.spent_tokens - b.reserved_tokens, 0) end,
        case when b.max_calls is not null then greatest(b.max_calls - b.spent_calls - b.reserved_calls, 0) end,
        b.on_exhausted
    from inserted, origin join budgets b on b.root_id = coalesce(origin.root_id, origin.id)
    where $21 is null and $25::text is not null
),
near_deadline as (
    insert into deadlines (execution_id, deadline_at) select id, deadline_at from inserted where $8::bool
),
-- The turn that gave the last answer which validators examined.
refused as materialized (
    select max(turn.seq) as seq
    from steps turn
    where turn.execution_id = $3 and turn.kind = 'turn' and turn.state = 'live' and $15::bool
        and turn.seq < (
            select max(verdict.seq) from steps verdict
            where verdict.execution_id = $3 and verdict.kind = 'verdict' and verdict.state = 'live'
        )
),
-- A step without a result is not copied, and neither is the turn it belongs to.
begun as materialized (
    select min(coalesce(
        (select max(t.seq) from steps t where t.execution_id = $3 and t.kind = 'turn' and t.seq <= s.seq), s.seq
    )) as seq
    from steps s
    where s.execution_id = $3 and s.state = 'intent' and $17::int is not null
),
prefix as materialized (
    select s.*
    from steps s, inserted, refused, begun
    where $14::bool and s.execution_id = $3 and s.state = 'live' and (refused.seq is null or s.seq < refused.seq)
        and (begun.seq is null or s.seq < begun.seq) and ($17::int is null or s.seq < $17)
        -- A changed prompt is rendered again; the steps after the old one are kept.
        and not ($20::bool and s.kind = 'prompt')
),
copied_steps as (
    insert into steps (
        execution_id, seq, attempt, kind, state, key, occurrence, name, appends, body, preview, failure_code,
        input_tokens,
        output_tokens, cached_tokens, cost, started_at, finished_at
    )
    select
        $1, seq, 0, kind, state, key, 0, name, appends, body, preview, failure_code, input_tokens, output_tokens,
        cached_tokens, cost, started_at, finished_at
    from prefix
    returning seq
),
event as (
    insert into events (execution_id, seq, at, kind, data)
    select id, 1, created_at, 'submitted',
        jsonb_strip_nulls(jsonb_build_object(
            'retry_of', retry_of, 'forked_from', forked_from, 'forked_before', forked_before,
            'copied_steps', (select count(*) from copied_steps), 'released', $25::text
        ))
    from inserted
),
counts as (
    insert into execution_count_changes (tenant_id, definition_key, agent_key, day, status, n)
    select tenant_id, definition_key, agent_key, (created_at at time zone 'UTC')::date, 'PENDING', 1 from inserted
)
select id as "id!" from inserted
