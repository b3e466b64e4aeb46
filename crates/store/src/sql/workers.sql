-- Workers with their leases, in the order of their ids: the one with id $1, or those in state $2 after $3.
select w.id, w.host, w.pid, w.build, w.queues, w.concurrency, held.held as "held!",
    now.state as "state!: _", w.started_at,
    w.draining_since, w.dead_at, h.renewed_at, h.expires_at as "expires_at?", h.steady_since as "steady_since?",
    coalesce(h.memory_bytes, w.memory_bytes) as memory_bytes
from workers w
left join lateral (
    select h.renewed_at, h.expires_at, h.steady_since, h.memory_bytes from worker_heartbeats h
    where h.worker_id = w.id order by h.expires_at desc limit 1
) h on true
cross join lateral (
    select case
        when w.dead_at is not null then 'dead'
        when h.expires_at is null or h.expires_at <= clock_timestamp() then 'late'
        when w.draining_since is not null then 'draining'
        else 'live'
    end as state
) now
cross join lateral (
    select count(*) as held from executions e where e.worker_id = w.id
) held
where ($1::uuid is null or w.id = $1) and ($2::text is null or now.state = $2) and ($3::uuid is null or w.id > $3)
order by w.id
limit $4
