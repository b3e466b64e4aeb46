-- Open children, not yet cancelled, of executions that ended or are to end. A parent with none left leaves the
-- work list: no child can come any more, because spawning fails once the parent is over or to be cancelled.
with parent as materialized (
    select execution_id as id from ending_parents order by execution_id limit $1 for update skip locked
),
child as materialized (
    select e.id
    from parent join executions e on e.parent_id = parent.id
    where e.finished_at is null and (e.worker_id is null or e.cancel_requested_at is null)
    order by e.id
    limit $1
    for no key update of e skip locked
),
done as (
    delete from ending_parents p using parent
    where p.execution_id = parent.id and not exists (
        select from executions e
        where e.parent_id = parent.id and e.finished_at is null
            and (e.worker_id is null or e.cancel_requested_at is null)
    )
)
select id as "id!" from child
