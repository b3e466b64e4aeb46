-- Violations that no history may show: gaps in the numbers of events, an end that is not unique or not last,
-- leases that overlap or are missing, and writes of an attempt at a time when neither it nor a later one was
-- under way. Conclusions by dead workers are not checked: the rows of workers are deleted before the history.
with lease as (
    select execution_id, number, worker_id, started_at, ended_at, outcome from attempts
    union all
    select id, attempt, worker_id, claimed_at, 'infinity', 'held' from executions where worker_id is not null
),
told as (
    select execution_id, count(*) as n, max(seq) as last,
        count(*) filter (where kind in ('finished', 'failed')) as ends,
        max(seq) filter (where kind in ('finished', 'failed')) as ended
    from events group by execution_id
),
leased as (
    select execution_id, count(*) as n, max(number) as last,
        count(*) filter (where outcome in ('finished', 'failed')) as ends
    from lease group by execution_id
)
select e.id as "execution_id!", 'history' as "kind!",
    format('%s events, the last is %s, and the execution counts %s', t.n, t.last, e.event_seq) as "what!"
from executions e left join told t on t.execution_id = e.id
where t.n is distinct from e.event_seq or t.last is distinct from e.event_seq
union all
select e.id, 'history', format('it is %s and its events tell %s ends', e.status, t.ends)
from executions e join told t on t.execution_id = e.id
where t.ends <> (e.finished_at is not null)::int
union all
select e.id, 'history', format('event %s comes after its end, event %s', t.last, t.ended)
from executions e join told t on t.execution_id = e.id
where t.last > t.ended
union all
select e.id, 'history', format('%s attempts are on record, the last is %s, and the execution counts %s',
    coalesce(l.n, 0), l.last, e.attempt)
from executions e left join leased l on l.execution_id = e.id
where coalesce(l.n, 0) <> e.attempt or coalesce(l.last, 0) <> e.attempt
union all
select e.id, 'history', format('%s attempts ended it', l.ends)
from executions e join leased l on l.execution_id = e.id
where l.ends > 1
union all
-- A claim reads its time before it finds the row; hence the tolerance of 100 ms.
select l.execution_id, 'stale', format('attempt %s began before the one before it had ended', l.number)
from (select *, lag(ended_at) over (partition by execution_id order by number) as before from lease) l
where l.started_at < l.before - interval '100 ms'
union all
select s.execution_id, 'stale', format('step %s (%s) of attempt %s was written when no attempt was under way', s.seq,
    s.kind, s.attempt)
from steps s
where s.finished_at is not null and not exists (
    select from lease l
    where l.execution_id = s.execution_id and l.number >= s.attempt
        and s.finished_at >= l.started_at - interval '100 ms' and s.finished_at <= l.ended_at
)
order by 1
