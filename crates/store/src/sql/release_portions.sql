-- The next portion of each group that is due for release; also sets the time of the portion after it. An
-- execution that is returned but not released, because this process dies, is in the next portion.
with now as materialized (
    select longhaul_now() as now
),
due as materialized (
    select g.tenant_id, g.definition_version_id, g.agent_version_id, g.died_builds
    from now, quarantine_groups g
    where g.state = 'releasing' and g.next_release_at <= longhaul_now()
    order by g.next_release_at
    limit $3
    for update of g skip locked
),
moved as (
    update quarantine_groups g
    set next_release_at = now.now + $2::float8 * interval '1 second'
    from due, now
    where g.tenant_id = due.tenant_id and g.definition_version_id = due.definition_version_id
        and g.agent_version_id = due.agent_version_id
)
select due.tenant_id, due.died_builds, q.execution_id
from due cross join lateral (
    select q.execution_id from quarantine q
    where q.tenant_id = due.tenant_id and q.definition_version_id = due.definition_version_id
        and q.agent_version_id = due.agent_version_id and q.released_as is null and q.withdrawn_at is null
        and not q.is_child and q.deadline_at > longhaul_now()
    order by q.deadline_at, q.execution_id
    limit $1
) q
