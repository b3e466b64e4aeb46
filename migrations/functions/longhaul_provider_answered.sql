-- Records that the endpoint answered calls that had to ask before they were made: any answer proves it reachable.
-- `are_over` says for each whether its wait is over; a call answered with 429 comes back. Releases at most `most`
-- waiting executions and returns them. Lock order: the breaker's row, then executions.
create or replace function longhaul_provider_answered(
    ids uuid[], tokens uuid[], are_over boolean[], of_provider text, of_model text, of_key text, most int
) returns setof uuid
    language plpgsql volatile
    as $$
declare
    b provider_breakers;
begin
    select * into b from provider_breakers
    where provider = of_provider and model = of_model and key = of_key
    for no key update;
    delete from provider_waits w using unnest(ids, are_over) as told (id, is_over)
    where w.execution_id = told.id and told.is_over;
    update provider_waits w set is_let_go = false
    from unnest(ids, are_over) as told (id, is_over)
    where w.execution_id = told.id and not told.is_over and w.is_let_go;
    if b.state = 'open' and exists (
        select from unnest(ids, tokens) as told (id, token) where told.id = b.probe_execution
            and told.token = b.probe_token
    ) then
        update provider_breakers
        set state = 'recovering', portion = 2, released = 0, answered = 0, portion_at = clock_timestamp(),
            cursor_priority = null, cursor_id = null, probe_execution = null, probe_token = null, probe_until = null
        where provider = of_provider and model = of_model and key = of_key;
    elsif b.state = 'recovering' then
        update provider_breakers set answered = answered + cardinality(ids)
        where provider = of_provider and model = of_model and key = of_key;
        if b.released >= b.portion and (b.answered + cardinality(ids)) * 2 >= b.portion then
            perform longhaul_next_portion(of_provider, of_model, of_key);
        end if;
    end if;
    return query select * from longhaul_release_waiters(of_provider, of_model, of_key, most);
end
$$;
