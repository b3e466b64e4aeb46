-- Deletes the session $1 of the tenant $2, unless a message arrived after its turn $3 or something spends its budget,
-- and the answers that name it.
with gone as (
    delete from sessions s
    where id = $1 and tenant_id = $2 and running is null and turns = $3
        and not exists (select from executions e where e.budget_id = s.id and e.finished_at is null)
    returning id
),
budget as (
    delete from budgets b using gone where b.root_id = gone.id
),
answers as (
    update kept_answers k set body = null
    from gone where k.body is not null and k.subjects && array[gone.id::text]
)
select true as "deleted!" from gone
