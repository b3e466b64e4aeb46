-- Parks with `no_worker` executions that have been runnable for $3 seconds and that no live worker serves, so
-- that claims need not pass them.
with now as materialized (
    select longhaul_now() as now
),
served as materialized (
    select distinct q.queue, s.serve_key
    from workers w cross join lateral unnest(w.queues) as q (queue) cross join lateral unnest(w.serves) as s (serve_key)
    where w.dead_at is null
),
unserved as materialized (
    select e.id, e.tenant_id, e.deadline_at, e.event_seq, now.now
    from now, executions e
    where e.wait_reason = 'worker' and e.queue = $1 and e.serve_key = $2
        and e.id < longhaul_uuid_floor(now.now - $3 * interval '1 second')
        and not exists (select from served where served.queue = $1 and served.serve_key = $2)
    -- In no order: a sort would read them all for each portion.
    limit $4
    for update of e skip locked
),
waits as (
    insert into parked (execution_id, tenant_id, wait_reason, wait_until)
    select id, tenant_id, 'no_worker', deadline_at from unserved
    on conflict (execution_id) do update set wait_reason = excluded.wait_reason, wait_until = excluded.wait_until
),
told as (
    insert into events (execution_id, seq, at, kind, data)
    select id, event_seq + 1, now, 'parked', jsonb_build_object('wait_reason', 'no_worker') from unserved
)
update executions e
set wait_reason = 'no_worker', wait_until = u.deadline_at, event_seq = e.event_seq + 1
from unserved u
where e.id = u.id
returning e.id as "id!"
