-- Inserts a person's retry of one FAILED execution: a new execution with the same input, and, when $14, the prefix of the
-- journal. A key that is taken inserts nothing.
with now as materialized (
    select longhaul_now() as now
),
origin as materialized (
    select e.*, p.input
    from executions e
    join execution_payloads p on p.execution_id = e.id
    where e.id = $3 and e.tenant_id = $2 and e.status = 'FAILED'
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
        metadata, created_at, deadline_at, active_timeout, retry_of, submitted_by, wait_reason, event_seq,
        has_budget
    )
    select
        $1, tenant_id, definition_key, $4, $16, $5, queue, $6, priority, metadata, now,
        now + $7::float8 * interval '1 second', $9::float8 * interval '1 second', id, $10::uuid, 'worker', 1,
        has_budget
    from origin, now
    where $12 is null or exists (select from keyed)
    on conflict (id) do nothing
    returning id, tenant_id, definition_key, agent_key, retry_of, created_at, deadline_at
),
payload as (
    insert into execution_payloads (execution_id, input, traceparent)
    select inserted.id, origin.input, $11::text from inserted, origin
),
caps as (
    -- Anew: what the first one spent is not this one's.
    insert into budgets (root_id, tenant_id, max_cost, max_tokens, max_calls, on_exhausted)
    select inserted.id, b.tenant_id, b.max_cost, b.max_tokens, b.max_calls, b.on_exhausted
    from inserted, origin join budgets b on b.root_id = coalesce(origin.root_id, origin.id)
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
prefix as materialized (
    select s.*
    from steps s, inserted, refused
    where $14::bool and s.execution_id = $3 and s.state = 'live' and (refused.seq is null or s.seq < refused.seq)
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
        jsonb_build_object('retry_of', retry_of, 'copied_steps', (select count(*) from copied_steps))
    from inserted
),
counts as (
    insert into execution_count_changes (tenant_id, definition_key, agent_key, day, status, n)
    select tenant_id, definition_key, agent_key, (created_at at time zone 'UTC')::date, 'PENDING', 1 from inserted
)
select id as "id!" from inserted
