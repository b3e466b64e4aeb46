-- Shut groups for which a live worker has a build that they have not killed, each with the execution to try: the
-- first in quarantine whose caller still waits, else the first that is held back.
select g.tenant_id, g.definition_version_id, g.agent_version_id, g.died_builds, first.execution_id as "execution_id?",
    held.id as "held_id?", held.serve_key as "held_serve_key?"
from quarantine_groups g
left join lateral (
    select waiting.execution_id from (
        select q.execution_id from quarantine q
        where q.tenant_id = g.tenant_id and q.definition_version_id = g.definition_version_id
            and q.agent_version_id = g.agent_version_id and q.released_as is null and q.withdrawn_at is null
            and not q.is_child and q.deadline_at > longhaul_now()
        order by q.deadline_at
        limit 50
    ) waiting
    -- The oldest: a retry that killed its worker comes after those not tried yet.
    order by waiting.execution_id
    limit 1
) first on true
left join lateral (
    select e.id, e.serve_key from executions e
    where e.wait_reason = 'queue_paused' and g.held_since is not null and e.tenant_id = g.tenant_id
        and e.definition_version_id = g.definition_version_id and e.agent_version_id = g.agent_version_id
    order by e.id
    limit 1
) held on first.execution_id is null
where g.state = 'shut' and (first.execution_id is not null or held.id is not null) and exists (
    select from workers w
    where w.dead_at is null and w.build <> all (g.died_builds) and w.queues && g.queues
)
order by g.changed_at
limit $1
