-- Refunds the retries spent on an outage: of failures over which a breaker opened and whose attempt ended with a
-- retry. An execution in backoff waits for the provider instead. Returns the number of refunds. The caller has
-- locked the breaker's row; lock order: breaker, then executions by id.
create or replace function longhaul_refund_failures(of_provider text, of_model text, of_key text, patience float8)
    returns int
    language plpgsql volatile
    as $$
declare
    f record;
    e executions;
    b provider_breakers;
    w provider_waits;
    given int := 0;
begin
    select * into b from provider_breakers where provider = of_provider and model = of_model and key = of_key;
    for f in
        select o.execution_id, o.lease_token, o.class, a.outcome, o.at
        from provider_failures o
        left join attempts a on a.execution_id = o.execution_id and a.lease_token = o.lease_token
        where o.provider = of_provider and o.model = of_model and o.key = of_key and o.is_owed
        order by o.execution_id
        limit 500
    loop
        -- The attempt has not ended yet; a later call finds it ended.
        continue when f.outcome is null and f.at > longhaul_now() - interval '1 hour';
        if f.outcome = 'retrying' then
            select * into e from executions where id = f.execution_id and finished_at is null for no key update;
            if found then
                update executions
                set transient_retries = greatest(0, transient_retries - (f.class = 'transient')::int),
                    llm_error_retries = greatest(0, llm_error_retries - (f.class = 'llm_error')::int)
                where id = e.id;
                given := given + 1;
                if e.wait_reason = 'retry_backoff' and b.state <> 'closed' then
                    w := longhaul_wait_for_provider(e.id, of_provider, of_model, of_key, 'provider_down', patience,
                        null, null);
                    update parked set wait_reason = 'provider_down', wait_until = least(w.give_up_at, e.deadline_at)
                    where execution_id = e.id;
                    insert into events (execution_id, seq, at, kind, data)
                    values (e.id, e.event_seq + 1, longhaul_now(), 'provider_down',
                        jsonb_strip_nulls(jsonb_build_object(
                        'provider', of_provider, 'model', of_model, 'cause', b.cause, 'until', b.open_until,
                        'refunded', f.class
                    )));
                    update executions
                    set wait_reason = 'provider_down', wait_until = greatest(b.open_until, longhaul_now()),
                        wake_seq = e.wake_seq + 1, event_seq = e.event_seq + 1
                    where id = e.id;
                end if;
            end if;
        end if;
        delete from provider_failures where execution_id = f.execution_id and lease_token = f.lease_token;
    end loop;
    return given;
end
$$;
