-- Settles the reservations of an execution that ends: deletes waiting ones, frees those granted but never taken,
-- and charges a call that may have been made at its estimate.
create or replace function longhaul_settle_rest() returns trigger
    language plpgsql
    as $$
begin
    delete from reservations where execution_id = new.id and state = 'waiting';
    update reservations
    set state = 'settled', is_estimate = lease_token is not null, charged_calls = (lease_token is not null)::int,
        charged_cost = case when lease_token is not null then cost end,
        charged_tokens = case when lease_token is not null then tokens else 0 end
    where execution_id = new.id and state = 'open';
    return null;
end
$$;

create or replace trigger executions_settle after update of finished_at on executions
    for each row
    when (old.finished_at is null and new.finished_at is not null and new.has_budget)
    execute function longhaul_settle_rest();
