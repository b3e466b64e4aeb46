-- Schedules whose tick has come or whose run has ended, at most $1 of each. Due ones are looked at in the order of
-- their ticks, at most ten times as many; of those each tenant's first comes before any tenant's second. A run is under
-- way until its descendants have ended; a tick that has come counts as queued.
with due as (
    select s.id, s.tenant_id, s.next_fire_at from schedules s
    where s.paused_at is null and s.next_fire_at <= longhaul_now()
    order by s.next_fire_at
    limit 10 * $1::bigint
),
ranked as (
    select id, row_number() over (partition by tenant_id order by next_fire_at, id) as place, next_fire_at from due
),
ended as (
    select f.schedule_id as id from schedule_firings f
    where f.state = 'ended' and longhaul_scheduled_run_is_over(f.execution_id)
    order by f.fired_at
    limit $1
),
found as (
    (select id, place, next_fire_at from ranked order by place, next_fire_at limit $1)
    union all
    select id, 0, null from ended where id not in (select id from due)
)
select s.id, s.tenant_id, s.spec::text as "spec!", s.revision, s.submitted_by, s.created_at, s.updated_at,
    s.anchored_at,
    s.paused_at, s.pause_reason, s.failures_in_a_row, s.next_fire_at, s.last_tick,
    (
        select f.execution_id from schedule_firings f
        where f.schedule_id = s.id and f.state in ('running', 'ended')
            and (f.state = 'running' or not longhaul_scheduled_run_is_over(f.execution_id))
    ) as running,
    (
        (select count(*) from schedule_firings f where f.schedule_id = s.id and f.state = 'queued')
            + (found.next_fire_at is not null)::int
    ) as "queued!"
from found join schedules s on s.id = found.id
order by found.place, found.next_fire_at, s.id
