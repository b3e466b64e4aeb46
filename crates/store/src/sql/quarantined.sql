-- Quarantined executions as people see them, each with its group.
select q.execution_id as id, q.tenant_id, q.definition_key, v.version as "definition_version?", q.agent_key, q.queue,
    q.quarantined_at, q.deadline_at, q.is_child, q.deaths, q.last_step, q.phase, q.memory_bytes,
    q.released_as as "released_as: _", q.released_at,
    case
        when q.released_as is not null then 'released'
        when q.withdrawn_at is not null then 'withdrawn'
        when q.deadline_at <= now.now then 'expired'
        else 'quarantined'
    end as "state!",
    g.state as "group_state?", g.died_builds as "died_builds?",
    g.canary as "canary: _", g.held_since
from (select longhaul_now() as now) now, quarantine q
left join definition_versions v on v.id = q.definition_version_id
left join quarantine_groups g on g.tenant_id = q.tenant_id and g.definition_version_id = q.definition_version_id
    and g.agent_version_id = q.agent_version_id and q.released_as is null
where ($1::uuid[] is null or q.tenant_id = any ($1)) and ($2::uuid is null or q.execution_id = $2)
    and ($3::bool or (q.released_as is null and q.withdrawn_at is null and q.deadline_at > now.now))
    and ($4::uuid is null or q.execution_id > $4)
order by q.execution_id
limit $5
