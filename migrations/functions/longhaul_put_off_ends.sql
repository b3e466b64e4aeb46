-- Puts off what a reaction has left of these rows of `ends`, each as a row of that reaction alone, so that the others
-- of the same end do not wait. With a failure the pause doubles from one second up to an hour. Without one the subject
-- is locked: rows that have been due for two seconds are looked at again after another, so that they make room.
create or replace function longhaul_put_off_ends(reaction text, ids bigint[], failure text) returns void
    language sql volatile
    as $$
    insert into ends (
        tenant_id, execution_id, event, request_id, project_id, occurred_at, reactions, attempts, next_at, error
    )
    select t.tenant_id, t.execution_id, t.event, t.request_id, t.project_id, t.occurred_at, array[reaction],
        t.attempts + (failure is not null)::int,
        longhaul_now() + case when failure is null then interval '1 second'
            else least(power(2, least(t.attempts, 20)), 3600) * interval '1 second' end,
        coalesce(left(failure, 500), t.error)
    from longhaul_strike_ends(reaction, array(
        select e.id from ends e
        where e.id = any (ids) and (failure is not null or e.next_at < longhaul_now() - interval '2 seconds')
    )) t
    $$;
