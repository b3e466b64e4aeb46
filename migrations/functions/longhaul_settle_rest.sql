-- Settles the reservations of an execution that ends: deletes waiting ones, frees those granted but never taken,
-- and charges a call that may have been made at its estimate.
create or replace function longhaul_settle_rest(execution uuid) returns void
    language sql volatile
    as $$
    delete from reservations where execution_id = execution and state = 'waiting';
    update reservations
    set state = 'settled', is_estimate = lease_token is not null, charged_calls = (lease_token is not null)::int,
        charged_cost = case when lease_token is not null then cost end,
        charged_tokens = case when lease_token is not null then tokens else 0 end
    where execution_id = execution and state = 'open';
$$;
