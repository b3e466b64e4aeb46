-- Writes episode $4 for a call of execution $2 under its lease, once. At most $5 calls of one execution do so.
with alive as materialized (
    select id from workers where id = $1 and dead_at is null for key share
),
holder as materialized (
    select e.id from executions e join alive on alive.id = e.worker_id
    where e.id = $2 and e.lease_token = $3
    for no key update of e
),
note as materialized (
    select ($4::memory_note).*
),
room as materialized (
    select count(*) < $5::bigint or coalesce(bool_or(m.call_key = (select n.call_key from note n)), false) as has_room
    from memory_episodes m where m.execution_id = $2 and m.call_key <> ''
),
written as (
    insert into memory_episodes (
        id, tenant_id, agent_key, scope, execution_id, session_id, call_key, exchange, written_by, content, hash,
        created_at, updated_at
    )
    select longhaul_uuid(), n.tenant_id, n.agent_key, n.scope, h.id, n.session_id, n.call_key, 0, h.id, n.content,
        n.hash, longhaul_now(), longhaul_now()
    from holder h, note n, room where room.has_room
    on conflict (execution_id, call_key) do nothing
)
select exists (select from holder) as "is_held!", room.has_room as "has_room!" from room
