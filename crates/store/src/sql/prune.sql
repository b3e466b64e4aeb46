-- Deletes executions that ended before $2, with everything stored about them, a batch at a time. Their partitions
-- may have been dropped before; history that shares a week with an unfinished execution is deleted here. The
-- counts by status describe the rows that exist, so they are reduced.
with gone as (
    delete from executions where id = any ($1) and finished_at < $2
    returning id, tenant_id, definition_key, agent_key, created_at, status
),
payloads as (
    delete from execution_payloads p using gone where p.execution_id = gone.id
),
quarantined as (
    delete from quarantine q using gone where q.execution_id = gone.id
),
notes as (
    delete from suspect_notes n using gone where n.execution_id = gone.id
),
requests as (
    delete from human_requests r using gone where r.execution_id = gone.id
),
old_budgets as (
    delete from budgets b using gone where b.root_id = gone.id
),
old_reservations as (
    delete from reservations r using gone where r.execution_id = gone.id
),
old_work as (
    delete from ending_parents p using gone where p.execution_id = gone.id
),
old_files as (
    delete from execution_files f using gone where f.execution_id = gone.id
),
-- The workspace of a session stays with that, without the results of the calls.
old_workspaces as (
    delete from workspaces w using gone where w.execution_id = gone.id
),
old_changes as (
    delete from workspace_changes c using gone where c.execution_id = gone.id
),
-- Episodes stay: memory outlives what it was taken from.
old_sources as (
    delete from memory_sources s using gone where s.id = gone.id
),
old_updates as (
    delete from memory_updates u using gone where u.execution_id = gone.id
),
old_recalls as (
    delete from memory_recalls r using gone where r.record_id = gone.id
),
-- Of its model calls; those are executions, and are pruned as such.
old_runs as (
    delete from runs r using gone where r.execution_id = gone.id
),
old_signals as (
    delete from signals s using gone where s.execution_id = gone.id
),
old_legs as (
    delete from wire_legs l using gone where l.execution_id = gone.id
),
old_marks as (
    delete from unstored u using gone where u.execution_id = gone.id
),
old_attempts as (
    delete from attempts a where a.execution_id = any ($1) and a.execution_id in (select id from gone)
),
old_steps as (
    delete from steps s where s.execution_id = any ($1) and s.execution_id in (select id from gone)
),
old_events as (
    delete from events v where v.execution_id = any ($1) and v.execution_id in (select id from gone)
),
counts as (
    insert into execution_count_changes (tenant_id, definition_key, agent_key, day, status, n)
    select tenant_id, definition_key, agent_key, (created_at at time zone 'UTC')::date, status, -count(*) from gone
    group by 1, 2, 3, 4, 5
)
select count(*) as "gone!" from gone
