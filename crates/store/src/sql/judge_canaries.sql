-- Judges canaries. Passed: no worker holds it, it recorded a step of its own since its release, and it was not
-- cancelled. Failed: it ended or was removed before that.
with now as materialized (
    select longhaul_now() as now
),
judged as materialized (
    select g.tenant_id, g.definition_version_id, g.agent_version_id, g.canary, now.now,
        case
            when e.id is null then false
            when e.worker_id is null and e.crash_count = 0 and e.failure_code is distinct from 'cancelled' and exists (
                select from steps s where s.execution_id = e.id and s.attempt > 0 and s.state <> 'intent'
            ) then true
            when e.finished_at is not null then false
        end as is_passed
    from now, quarantine_groups g left join executions e on e.id = g.canary
    -- Not a canary that another statement has just set: this statement's snapshot does not know it.
    where g.state = 'canary' and g.changed_at < now.now - interval '1 second'
    for update of g skip locked
)
update quarantine_groups g
set state = case when judged.is_passed then 'releasing' else 'shut' end, canary = null,
    next_release_at = case when judged.is_passed then judged.now end, changed_at = judged.now
from judged
where g.tenant_id = judged.tenant_id and g.definition_version_id = judged.definition_version_id
    and g.agent_version_id = judged.agent_version_id and g.canary = judged.canary and judged.is_passed is not null
returning judged.canary as "canary!", judged.is_passed as "is_passed!"
