-- Records that a call of the execution that the lease holds waits for these children. Waits that are over go: their
-- calls have been answered, or are as soon as the attempt looks at them. Without a row the lease is lost.
with me as materialized (
    select id from workers where id = $1 and dead_at is null for key share
),
parent as materialized (
    select e.id from me, executions e
    where e.id = $2 and e.worker_id is not distinct from $1 and e.lease_token = $3
    for no key update of e
),
gone as (
    delete from child_waits w using parent where w.parent_id = parent.id and w.call_key <> $4 and longhaul_wait_over(w)
)
insert into child_waits (parent_id, call_key, children, until_first)
select parent.id, $4, $5::uuid[], $6 from parent
on conflict (parent_id, call_key) do update set children = excluded.children, until_first = excluded.until_first
returning true as "is_stored!"
