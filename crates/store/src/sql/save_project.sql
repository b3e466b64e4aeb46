-- Writes a project that this transaction has locked, as $1 says, with events of the kinds $2 and the data $3 behind
-- those that it has.
with new as materialized (
    select ($1::project_state).*
),
noted as (
    insert into project_events (project_id, seq, at, kind, data)
    select new.id, new.event_seq + e.n, new.at, e.kind, e.data
    from new cross join unnest($2::text[], $3::jsonb[]) with ordinality as e (kind, data, n)
)
update projects p
set status = new.status, pause_reason = new.pause_reason,
    line_at = case when new.status = 'approved' then case when p.status = 'approved' then p.line_at else new.at end end,
    started_at = case when new.status = 'in_progress' then coalesce(p.started_at, new.at) else p.started_at end,
    finished_at = case when new.is_end then coalesce(p.finished_at, new.at) end,
    failure_code = case when new.is_end then coalesce(new.failure_code, p.failure_code) end,
    failure_summary = case when new.is_end then coalesce(new.failure_summary, p.failure_summary) end,
    plan_version = new.plan_version, phase = new.phase, pending = new.pending, running = new.running,
    completed = new.completed, failed = new.failed, skipped = new.skipped, cancelled = new.cancelled,
    event_seq = new.event_seq + cardinality($2)
from new
where p.id = new.id
