-- Releases the rest of the current portion of an endpoint's waiting executions, in fair order and at most `most`,
-- and closes the breaker when none is left. Returns the executions woken. The caller has locked the breaker's
-- row; lock order: breaker, then executions.
--
-- Reads the line once, from behind the execution released last: released executions leave dead entries in the
-- index.
create or replace function longhaul_release_waiters(of_provider text, of_model text, of_key text, most int)
    returns setof uuid
    language plpgsql volatile
    as $$
declare
    b provider_breakers;
    wanted int;
    line uuid[];
    priorities smallint[];
    is_end boolean;
    done uuid[];
    gone uuid[];
begin
    select * into b from provider_breakers
    where provider = of_provider and model = of_model and key = of_key and state = 'recovering';
    if b.state is null then
        return;
    end if;
    -- Executions that have ended do not count towards the portion: up to four looks make up for them.
    for _look in 1..4 loop
        wanted := least(b.portion - b.released, most);
        exit when wanted <= 0;
        -- One more than wanted, to learn if there are more.
        select array_agg(x.execution_id order by x.priority desc, x.execution_id),
            array_agg(x.priority order by x.priority desc, x.execution_id)
        into line, priorities
        from (
            (
                select w.priority, w.execution_id from provider_waits w
                where w.provider = of_provider and w.model = of_model and w.key = of_key and w.reason = 'provider_down'
                    and not w.is_released and w.priority = b.cursor_priority and w.execution_id > b.cursor_id
                order by w.execution_id
                limit wanted + 1
            )
            union all
            (
                select w.priority, w.execution_id from provider_waits w
                where w.provider = of_provider and w.model = of_model and w.key = of_key and w.reason = 'provider_down'
                    and not w.is_released and w.priority < coalesce(b.cursor_priority, 32767)
                order by w.priority desc, w.execution_id
                limit wanted + 1
            )
            order by priority desc, execution_id
            limit wanted + 1
        ) x;
        is_end := coalesce(cardinality(line), 0) <= wanted;
        line := line[:wanted];
        b.cursor_priority := priorities[cardinality(line)];
        b.cursor_id := line[cardinality(line)];
        select array_agg(w.id) filter (where not w.is_over), array_agg(w.id) filter (where w.is_over) into done, gone
        from longhaul_wake_all(line, 'provider_down') w;
        update provider_waits set is_released = true, is_let_go = true where execution_id = any (done);
        delete from provider_waits where execution_id = any (gone);
        if done is not null then
            b.released := b.released + cardinality(done);
            most := most - cardinality(done);
            b.portion_at := clock_timestamp();
            return query select * from unnest(done);
        end if;
        if is_end then
            -- Executions that were locked, or stand before the cursor, are found from the head of the line.
            b.cursor_priority := null;
            b.cursor_id := null;
            if not exists (
                select from provider_waits w
                where w.provider = of_provider and w.model = of_model and w.key = of_key and w.reason = 'provider_down'
                    and not w.is_released
            ) then
                b.state := 'closed';
                b.portion := 0;
                b.released := 0;
                b.answered := 0;
                b.failed_probes := 0;
            end if;
        end if;
        exit when is_end or gone is null;
    end loop;
    update provider_breakers x
    set state = b.state, portion = b.portion, released = b.released, answered = b.answered, portion_at = b.portion_at,
        cursor_priority = b.cursor_priority, cursor_id = b.cursor_id, failed_probes = b.failed_probes,
        open_until = null, is_stated = false, probe_execution = null, probe_token = null, probe_until = null
    where x.provider = of_provider and x.model = of_model and x.key = of_key;
end
$$;
