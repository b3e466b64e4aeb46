-- Inserts a new execution that goes on from another's journal: a person's retry of a FAILED one (with the prefix of the journal when
-- $14), or, when $17, a fork of any one before that step. Messages live with their execution, so the prefix brings its own copies
-- (core-rules 14). A key that is taken inserts nothing.
with now as materialized (
    select longhaul_now() as now
),
origin as materialized (
    select e.*, p.input, p.overrides
    from executions e
    join execution_payloads p on p.execution_id = e.id
    where e.id = $3 and e.tenant_id = $2 and (e.status = 'FAILED' or $17::int is not null)
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
        metadata, created_at, deadline_at, active_timeout, retry_of, forked_from, forked_before, submitted_by, wait_reason,
        event_seq, has_budget
    )
    select
        $1, tenant_id, definition_key, $4, $16, $5, queue, $6, priority, metadata, now,
        now + $7::float8 * interval '1 second', $9::float8 * interval '1 second', 
        case when $17::int is null then id end, case when $17::int is not null then id end, $17::int, $10::uuid, 'worker', 1,
        has_budget or $21::text is not null
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
    -- Anew: what the first one spent is not this one's.
    insert into budgets (root_id, tenant_id, max_cost, max_tokens, max_calls, on_exhausted)
    select id, tenant_id, $22::bigint, $23::bigint, $24::bigint, $21::text from inserted where $21 is not null
    union all
    select inserted.id, b.tenant_id, b.max_cost, b.max_tokens, b.max_calls, b.on_exhausted
    from inserted, origin join budgets b on b.root_id = coalesce(origin.root_id, origin.id)
    where $21 is null
),
near_deadline as (
    insert into deadlines (execution_id, deadline_at) select id, deadline_at from inserted where $8::bool
),
-- The turn that gave the last answer a validator looked at.
refused as materialized (
    select max(turn.seq) as seq
    from steps turn
    where turn.execution_id = $3 and turn.kind = 'turn' and turn.state = 'live' and $15::bool
        and turn.seq < (
            select max(verdict.seq) from steps verdict
            where verdict.execution_id = $3 and verdict.kind = 'verdict' and verdict.state = 'live'
        )
),
-- What has begun and has no result is not shared, and neither is the reply that it belongs to.
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
        -- Another prompt is rendered anew; what was said after the old one stands.
        and not ($20::bool and s.kind = 'prompt')
),
copied_steps as (
    insert into steps (
        execution_id, seq, attempt, kind, state, key, occurrence, name, appends, body, preview, failure_code, input_tokens,
        output_tokens, cached_tokens, cost, started_at, finished_at
    )
    select
        $1, seq, 0, kind, state, key, 0, name, appends, body, preview, failure_code, input_tokens, output_tokens,
        cached_tokens, cost, started_at, finished_at
    from prefix
    returning seq
),
copied_messages as (
    insert into messages (execution_id, hash, body)
    select $1, m.hash, m.body
    from messages m
    where m.execution_id = $3 and m.hash in (select unnest(prefix.appends) from prefix)
),
event as (
    insert into events (execution_id, seq, at, kind, data)
    select id, 1, created_at, 'submitted',
        jsonb_strip_nulls(jsonb_build_object(
            'retry_of', retry_of, 'forked_from', forked_from, 'forked_before', forked_before,
            'copied_steps', (select count(*) from copied_steps)
        ))
    from inserted
),
counts as (
    insert into execution_count_changes (tenant_id, definition_key, agent_key, day, status, n)
    select tenant_id, definition_key, agent_key, (created_at at time zone 'UTC')::date, 'PENDING', 1 from inserted
)
select id as "id!" from inserted
