-- Inserts a new execution that continues another's journal: a person's retry of a FAILED one or, if $4 is set, a
-- fork of any execution before that step. $3 is the part of the journal that is copied: 'none', 'all', or 'accepted',
-- all before the answer that validators refused. Messages live with their execution, so they are copied too
-- (core-rules 14). If the idempotency key is taken, nothing is inserted.
--
-- $8 releases a quarantined execution (docs/adr/0019-quarantine.md): `canary` if its group is shut, `manual` if it is
-- shut or releasing, `rest` as part of a portion. The same statement sets the link from the quarantined execution, so
-- that none is released twice. An execution that killed workers starts as a suspect, a canary alone.
with now as materialized (
    select longhaul_now() as now
),
new as materialized (
    select ($1::submission).*
),
asked as materialized (
    select e.*, p.input, p.overrides
    from new
    join executions e on e.id = $2 and e.tenant_id = new.tenant_id
    join execution_payloads p on p.execution_id = e.id
    where (e.status = 'FAILED' or $4::int is not null) and p.erased_at is null
),
-- Each release locks the group's row first, so two releases run one after the other.
opened as (
    insert into quarantine_groups as g (
        tenant_id, definition_version_id, agent_version_id, definition_key, agent_key, queues, state, died_builds,
        canary, changed_at
    )
    select asked.tenant_id, asked.definition_version_id, asked.agent_version_id, asked.definition_key,
        asked.agent_key, array[asked.queue], 'canary', '{}', new.id, now.now
    from asked, now, new
    where $8::text in ('canary', 'manual')
    on conflict (tenant_id, definition_version_id, agent_version_id) do update
    set state = 'canary', canary = excluded.canary, changed_at = excluded.changed_at,
        -- A manual release says that the cause is gone, whatever the build.
        died_builds = case when $8 = 'manual' then '{}' else g.died_builds end
    where g.state = 'shut' or ($8 = 'manual' and g.state = 'releasing')
    returning g.tenant_id
),
released as (
    update quarantine q
    set released_as = new.id, released_at = now.now
    from now, new
    where q.execution_id = $2 and q.tenant_id = new.tenant_id and q.released_as is null and $4::int is null
        and ($8::text is null or (q.withdrawn_at is null and q.deadline_at > now.now))
        and ($8::text is null or $8 = 'rest' or exists (select from opened))
    returning q.execution_id
),
origin as materialized (
    select asked.* from asked where $8::text is null or exists (select from released)
),
keyed as (
    insert into idempotency_keys (tenant_id, key, execution_id, request_hash, created_at)
    select new.tenant_id, new.idempotency_key, new.id, new.request_hash, now.now
    from origin, new, now
    where new.idempotency_key is not null
    on conflict (tenant_id, key) do nothing
    returning execution_id
),
inserted as (
    insert into executions (
        id, tenant_id, definition_key, definition_version_id, agent_key, agent_version_id, queue, serve_key, priority,
        metadata, created_at, deadline_at, active_timeout, retry_of, forked_from, forked_before, submitted_by,
        wait_reason, event_seq, has_budget, budget_id, project_id, lane, crash_count
    )
    select
        new.id, o.tenant_id, o.definition_key, new.definition_version_id, new.agent_key, new.agent_version_id, o.queue,
        new.serve_key, o.priority, o.metadata, now.now, now.now + new.deadline_seconds * interval '1 second',
        new.active_timeout_seconds * interval '1 second', case when $4::int is null then o.id end,
        case when $4::int is not null then o.id end, $4::int,
        -- A release keeps the submitter, who therefore still cannot decide about the execution's own approvals.
        coalesce(new.submitted_by, case when $8::text is not null then o.submitted_by end), 'worker', 1,
        o.has_budget or new.on_exhausted is not null,
        -- A copy of a session's message runs outside the session and spends its budget all the same. One of a project's
        -- task is none of its tasks, spends its budget, and is erased with it.
        case when new.on_exhausted is null then o.budget_id end,
        o.project_id,
        case
            when $8 in ('canary', 'manual') then 2
            when o.failure_code = 'crash_loop' and $4::int is null then 1
            else 0
        end,
        case when o.failure_code = 'crash_loop' and $4::int is null then 2 else 0 end
    from origin o, new, now
    where new.idempotency_key is null or exists (select from keyed)
    on conflict (id) do nothing
    returning id, tenant_id, definition_key, agent_key, retry_of, forked_from, forked_before, created_at, deadline_at
),
payload as (
    insert into execution_payloads (execution_id, input, overrides, traceparent)
    select inserted.id, coalesce($5::text::json, origin.input), coalesce($6::text::json, origin.overrides),
        new.traceparent
    from inserted, origin, new
),
caps as (
    -- A new budget: what the origin spent does not count.
    insert into budgets (root_id, tenant_id, max_cost, max_tokens, max_calls, on_exhausted)
    select new.id, new.tenant_id, new.max_cost, new.max_tokens, new.max_calls, new.on_exhausted
    from inserted, new
    where new.on_exhausted is not null
    union all
    select inserted.id, b.tenant_id, b.max_cost, b.max_tokens, b.max_calls, b.on_exhausted
    from inserted, new, origin join budgets b on b.root_id = coalesce(origin.root_id, origin.id)
    where new.on_exhausted is null and $8::text is null
    union all
    -- A release adds no money: it gets what is left.
    select inserted.id, b.tenant_id,
        case when b.max_cost is not null then greatest(b.max_cost - b.spent_cost - b.reserved_cost, 0) end,
        case when b.max_tokens is not null then greatest(b.max_tokens - b.spent_tokens - b.reserved_tokens, 0) end,
        case when b.max_calls is not null then greatest(b.max_calls - b.spent_calls - b.reserved_calls, 0) end,
        b.on_exhausted
    from inserted, new, origin join budgets b on b.root_id = coalesce(origin.root_id, origin.id)
    where new.on_exhausted is null and $8::text is not null
),
near_deadline as (
    insert into deadlines (execution_id, deadline_at)
    select inserted.id, inserted.deadline_at from inserted, new where new.deadline_is_near
),
-- The turn that gave the last answer which validators examined.
refused as materialized (
    select max(turn.seq) as seq
    from steps turn
    where turn.execution_id = $2 and turn.kind = 'turn' and turn.state = 'live' and $3 = 'accepted'
        and turn.seq < (
            select max(verdict.seq) from steps verdict
            where verdict.execution_id = $2 and verdict.kind = 'verdict' and verdict.state = 'live'
        )
),
-- A step without a result is not copied, and neither is the turn it belongs to.
begun as materialized (
    select min(coalesce(
        (select max(t.seq) from steps t where t.execution_id = $2 and t.kind = 'turn' and t.seq <= s.seq), s.seq
    )) as seq
    from steps s
    where s.execution_id = $2 and s.state = 'intent' and $4::int is not null
),
prefix as materialized (
    select s.*
    from steps s, refused, begun
    where $3::text <> 'none' and s.execution_id = $2 and s.state = 'live'
        and (refused.seq is null or s.seq < refused.seq)
        and (begun.seq is null or s.seq < begun.seq) and ($4::int is null or s.seq < $4)
        -- A changed prompt is rendered again; the steps after the old one are kept.
        and not ($7::bool and s.kind = 'prompt')
),
copied_steps as (
    insert into steps (
        execution_id, seq, attempt, kind, state, key, occurrence, name, appends, body, preview, failure_code,
        input_tokens, output_tokens, cached_tokens, cache_write_tokens, cost, started_at, finished_at
    )
    select
        inserted.id, seq, 0, kind, state, key, 0, name, appends, body, preview, failure_code, input_tokens,
        output_tokens, cached_tokens, cache_write_tokens, cost, started_at, finished_at
    from prefix, inserted
    returning seq
),
copied_files as (
    insert into execution_files (
        execution_id, id, kind, tenant_id, hash, media_type, name, bytes, call_key, created_at
    )
    select inserted.id, f.id, f.kind, f.tenant_id, f.hash, f.media_type, f.name, f.bytes, f.call_key, f.created_at
    from inserted, execution_files f
    where f.execution_id = $2 and (f.kind = 'input' or f.call_key in (select key from prefix))
),
-- The workspace as of the last copied call. Versions are those of the origin, so that the copy can be forked again.
origin_workspace as materialized (
    select w.id, greatest(w.oldest, coalesce(
        (select max(c.version) from workspace_changes c
            where c.workspace_id = w.id and c.execution_id = $2 and c.call_key in (select key from prefix)),
        (select min(c.version) - 1 from workspace_changes c where c.workspace_id = w.id and c.execution_id = $2),
        -- A message that changed nothing: before the changes of later messages.
        (select min(c.version) - 1
            from session_turns own
            join session_turns later on later.session_id = own.session_id and later.number > own.number
            join workspace_changes c on c.execution_id = later.execution_id
            where own.execution_id = $2 and c.workspace_id = w.id),
        w.version
    )) as version, w.oldest
    from origin join workspaces w on w.id = coalesce(origin.session_id, origin.id)
),
copied_workspace as (
    insert into workspaces (id, tenant_id, execution_id, version, oldest, changed_at)
    select inserted.id, inserted.tenant_id, inserted.id, w.version, w.oldest, inserted.created_at
    from inserted, origin_workspace w
),
copied_entries as (
    insert into workspace_entries (
        workspace_id, path, since, until, tenant_id, kind, hash, bytes, is_executable, target
    )
    select inserted.id, e.path, e.since, case when e.until <= w.version then e.until end, e.tenant_id, e.kind, e.hash,
        e.bytes, e.is_executable, e.target
    from inserted, origin_workspace w join workspace_entries e on e.workspace_id = w.id and e.since <= w.version
),
copied_changes as (
    insert into workspace_changes (workspace_id, version, execution_id, call_key, repeat_key, is_error)
    select inserted.id, c.version, inserted.id, c.call_key, c.repeat_key, c.is_error
    from inserted, origin_workspace w join workspace_changes c on c.workspace_id = w.id and c.version <= w.version
    where c.execution_id = $2
),
event as (
    insert into events (execution_id, seq, at, kind, data)
    select id, 1, created_at, 'submitted',
        jsonb_strip_nulls(jsonb_build_object(
            'retry_of', retry_of, 'forked_from', forked_from, 'forked_before', forked_before,
            'copied_steps', (select count(*) from copied_steps), 'released', $8::text
        ))
    from inserted
),
counts as (
    insert into execution_count_changes (tenant_id, definition_key, agent_key, day, status, n)
    select tenant_id, definition_key, agent_key, (created_at at time zone 'UTC')::date, 'PENDING', 1 from inserted
)
select id as "id!" from inserted
