-- Makes the next version of a workspace under the lease of an attempt: ends the entries of some paths, and adds others.
-- Old entries beyond $6 bytes or $7 rows are forgotten, the oldest first.
with alive as materialized (
    select id from workers where id = $1 and dead_at is null for key share
),
holder as materialized (
    select e.id, e.tenant_id, e.session_id, coalesce(e.session_id, e.id) as workspace_id
    from executions e join alive on alive.id = e.worker_id
    where e.id = $2 and e.lease_token = $3
    for no key update of e
),
fitting as materialized (
    select h.* from holder h left join workspaces w on w.id = h.workspace_id
    where coalesce(w.version, 0) = ($4::workspace_change).from_version
),
old as (
    select e.workspace_id, e.path, e.since,
        sum(e.bytes) over newest_first as bytes, row_number() over newest_first as number
    from workspace_entries e join fitting on fitting.workspace_id = e.workspace_id
    where e.until is not null
    window newest_first as (order by e.until desc, e.path)
),
forgotten as (
    delete from workspace_entries e using old
    where (e.workspace_id, e.path, e.since) = (old.workspace_id, old.path, old.since)
        and (old.bytes > $6::bigint or old.number > $7::bigint)
    returning e.until
),
changed as (
    insert into workspaces as w (id, tenant_id, session_id, execution_id, version, oldest, changed_at)
    select h.workspace_id, h.tenant_id, h.session_id, case when h.session_id is null then h.id end, 1, 0,
        longhaul_now()
    from holder h
    where ($4::workspace_change).from_version = 0 or exists (select from workspaces w where w.id = h.workspace_id)
    on conflict (id) do update
    set version = w.version + 1, changed_at = excluded.changed_at,
        oldest = greatest(w.oldest, (select max(until) from forgotten))
    where w.version = ($4::workspace_change).from_version
    returning id, tenant_id, version
),
ended as (
    update workspace_entries e set until = changed.version
    from changed
    where e.workspace_id = changed.id and e.until is null and e.path = any (($4::workspace_change).ended)
),
added as (
    insert into workspace_entries (
        workspace_id, path, since, tenant_id, kind, hash, bytes, is_executable, target
    )
    select changed.id, a.path, changed.version, changed.tenant_id, a.kind, a.hash, a.bytes, a.is_executable, a.target
    from changed, unnest($5::workspace_node[]) as a
),
-- The model's context has older results; only a call of the same turn may be repeated.
recorded as (
    update workspace_changes c set result = null
    from changed
    where c.workspace_id = changed.id and c.version = changed.version - 257
),
noted as (
    insert into workspace_changes (workspace_id, version, execution_id, call_key, repeat_key, is_error, result)
    select changed.id, changed.version, $2, c.call_key, c.repeat_key, c.is_error, c.result
    from changed, (select ($4::workspace_change).*) as c
)
select (select version from changed) as version, exists (select from holder) as "is_held!"
