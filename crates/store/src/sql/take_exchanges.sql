-- Writes exchanges $8 of source $4 as episodes under the lease of an update, unless others after $5 were taken
-- meanwhile; $6 is then the last. If more are left ($7 is null), the source is looked at again: at once, or later if
-- nothing was taken. Also later if another than the last known one, $7, has begun.
with alive as materialized (
    select id from workers where id = $1 and dead_at is null for key share
),
holder as materialized (
    select e.id from executions e join alive on alive.id = e.worker_id
    where e.id = $2 and e.lease_token = $3
    for no key update of e
),
now as materialized (
    select longhaul_now() as now
),
moved as (
    update memory_sources s
    set taken = $6, check_at = case
            when $7::int is null and $6 > $5 then now.now
            when s.noted is distinct from $7 then now.now + interval '30 minutes'
        end
    from holder, now where s.id = $4 and s.taken = $5
    returning s.*
),
given as materialized (
    select x.* from unnest($8::memory_exchange[]) as x
),
-- An erasure under way is waited for; what is erased is not remembered.
kept as materialized (
    select p.execution_id from execution_payloads p
    where p.execution_id in (select g.execution_id from given g) and p.erased_at is null
    for share of p
),
written as (
    insert into memory_episodes (
        id, tenant_id, agent_key, scope, execution_id, session_id, call_key, exchange, written_by, content, hash,
        created_at, updated_at
    )
    select longhaul_uuid(), m.tenant_id, m.agent_key, m.scope, g.execution_id, case when m.is_session then m.id end, '',
        g.number, $2, g.content, g.hash, now.now, now.now
    from now, moved m, given g join kept k using (execution_id)
    on conflict (execution_id, call_key) do nothing
)
select exists (select from holder) as "is_held!"
