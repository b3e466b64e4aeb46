-- Makes an execution that is held back the canary of its group: it runs alone, on a worker of another build.
with now as materialized (
    select longhaul_now() as now
),
held as materialized (
    select e.id, e.event_seq from executions e where e.id = $1 and e.wait_reason = 'queue_paused'
        for no key update of e skip locked
),
opened as (
    update quarantine_groups g
    set state = 'canary', canary = held.id, changed_at = now.now
    from held, now
    where g.tenant_id = $2 and g.definition_version_id = $3 and g.agent_version_id = $4 and g.state = 'shut'
    returning held.id, held.event_seq, now.now
),
gone as (
    delete from parked p using opened where p.execution_id = opened.id
),
told as (
    insert into events (execution_id, seq, at, kind, data)
    select id, event_seq + 1, now, 'woken', jsonb_build_object('waited_for', 'queue_paused', 'released', 'canary')
        from opened
)
update executions e
set wait_reason = 'worker', wait_until = null, lane = 2, crash_count = 2, serve_key = $5, wake_seq = e.wake_seq + 1,
    event_seq = e.event_seq + 1
from opened
where e.id = opened.id
returning e.id, e.queue
