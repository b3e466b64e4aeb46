-- Deletes sessions without a message or answer since $2, with their turns, transcripts, files and workspaces, which
-- cascade, and with their budgets and memory sources. Episodes stay: memory outlives what it was taken from.
with idle as materialized (
    -- A session that a statement holds is at work.
    select s.id from sessions s
    where s.id = any ($1) and s.active_at < $2 and s.running is null
        and not exists (select from session_turns t where t.session_id = s.id and t.state <> 'ended')
        -- Retries and forks of its executions spend its budget.
        and not exists (
            select from executions e where e.budget_id = s.id and e.finished_at is null
        )
    for update of s skip locked
),
gone as (
    delete from sessions s using idle where s.id = idle.id returning s.id
),
budget as (
    delete from budgets b using gone where b.root_id = gone.id
),
sources as (
    delete from memory_sources m using gone where m.id = gone.id
),
recalls as (
    delete from memory_recalls r using gone where r.record_id = gone.id
)
select count(*) as "gone!" from gone
