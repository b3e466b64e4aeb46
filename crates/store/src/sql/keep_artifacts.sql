-- Names the files that a call left, under the lease of its attempt, unless the execution has too many; in its session,
-- too. Repeating it changes nothing.
with alive as materialized (
    select id from workers where id = $1 and dead_at is null for key share
),
holder as materialized (
    select e.id, e.tenant_id, e.session_id,
        (select count(*) from execution_files f where f.execution_id = e.id and f.kind = 'artifact')
            + cardinality($5::artifact[]) <= $6 as has_room
    from executions e join alive on alive.id = e.worker_id
    where e.id = $2 and e.lease_token = $3
),
kept as (
    insert into execution_files (
        execution_id, id, kind, tenant_id, hash, media_type, name, bytes, call_key, created_at
    )
    select holder.id, a.id, 'artifact', holder.tenant_id, a.hash, a.media_type, a.name, a.bytes, $4,
        longhaul_now()
    from holder, unnest($5::artifact[]) as a
    where holder.has_room
    on conflict (execution_id, id) do nothing
),
in_session as (
    insert into session_files (session_id, tenant_id, hash)
    select distinct holder.session_id, holder.tenant_id, a.hash
    from holder, unnest($5::artifact[]) as a
    where holder.has_room and holder.session_id is not null
    on conflict (session_id, hash) do nothing
)
select has_room as "has_room!" from holder
