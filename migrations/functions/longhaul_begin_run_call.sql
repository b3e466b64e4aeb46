-- Finds the answer to a request of a run, or records the execution that will answer it. Requests of one run follow each
-- other: all of them lock its row, but for a first look that finds nothing to hand out.
--
-- Without an `execution` only recorded answers are handed out; 'new' then means that one is needed, and nothing has
-- changed. With one, which the caller has stored in this transaction, 'new' means that it answers the request.
--
-- verdict: 'known', 'new', 'ended', 'deadline_passed', 'too_many_calls', 'too_many_attempts', 'too_many_positions', and
-- no row if the tenant has no such run. `seconds_left` is the time until the run's deadline.
create or replace function longhaul_begin_run_call(
    asked run_request, execution uuid, most_calls int, most_attempts int, most_positions int
)
    returns table (
        verdict text, occurrence int, execution_id uuid, is_new_to_attempt boolean, status text, seconds_left float8
    )
    language plpgsql volatile
    as $$
#variable_conflict use_column
declare
    r runs;
    place run_attempts;
    recorded run_calls;
    wanted int := 1;
    is_new_place boolean;
    is_new_attempt boolean := false;
    is_recorded boolean;
    is_new boolean;
    left_over float8;
begin
    -- A lock is a write, and its commit waits for the disk. What is decided here is decided again with the execution.
    if execution is null then
        return query
            select 'new', 1, null::uuid, true, x.status, extract(epoch from x.deadline_at - longhaul_now())::float8
            from runs x
            where x.id = asked.run_id and x.tenant_id = asked.tenant_id and x.status = 'open'
                and x.deadline_at > longhaul_now() and x.calls < most_calls and x.positions < most_positions
                and not exists (select from run_calls c where c.run_id = x.id and c.content = asked.content);
        if found then
            return;
        end if;
    end if;

    select * into r from runs x where x.id = asked.run_id and x.tenant_id = asked.tenant_id for no key update;
    if not found then
        return;
    end if;
    left_over := extract(epoch from r.deadline_at - longhaul_now());
    if r.status <> 'open' then
        return query select 'ended', 0, null::uuid, false, r.status, left_over;
        return;
    end if;
    if r.execution_id is not null
        and not exists (select from executions x where x.id = r.execution_id and x.finished_at is null) then
        return query select 'ended', 0, null::uuid, false, r.status, left_over;
        return;
    end if;
    if left_over <= 0 then
        -- The sweep ends the run.
        return query select 'deadline_passed', 0, null::uuid, false, r.status, left_over;
        return;
    end if;

    select * into place from run_attempts p
    where p.run_id = r.id and p.attempt = asked.attempt and p.content = asked.content;
    is_new_place := not found;
    if not is_new_place then
        wanted := place.occurrence + (place.is_delivered and not asked.is_retry)::int;
    elsif r.positions >= most_positions then
        return query select 'too_many_positions', 0, null::uuid, false, r.status, left_over;
        return;
    else
        is_new_attempt := not exists (
            select from run_attempts p where p.run_id = r.id and p.attempt = asked.attempt
        );
        if is_new_attempt and r.attempts >= most_attempts then
            return query select 'too_many_attempts', 0, null::uuid, false, r.status, left_over;
            return;
        end if;
    end if;

    select * into recorded from run_calls c
    where c.run_id = r.id and c.content = asked.content and c.occurrence = wanted;
    is_recorded := found;
    -- A failure answers nothing: the next request makes the call anew. So does one after an erasure.
    is_new := not is_recorded or not exists (
        select from executions e join execution_payloads p on p.execution_id = e.id
        where e.id = recorded.execution_id and p.erased_at is null
            and (e.status = 'FINISHED' or e.finished_at is null and e.cancel_requested_at is null)
    );
    if is_new and not is_recorded and r.calls >= most_calls then
        return query select 'too_many_calls', 0, null::uuid, false, r.status, left_over;
        return;
    end if;
    if is_new and execution is null then
        return query select 'new', wanted, null::uuid, true, r.status, left_over;
        return;
    end if;

    if not is_new then
        if is_new_place or place.occurrence < wanted then
            update run_calls c set hits = c.hits + 1
            where c.run_id = r.id and c.content = asked.content and c.occurrence = wanted;
        end if;
    else
        if is_recorded then
            update run_calls c
            set execution_id = execution, made_at = longhaul_now(), hits = 0, tries = c.tries + 1,
                replaced_cost = c.replaced_cost + coalesce(gone.cost, 0),
                replaced_tokens = c.replaced_tokens + coalesce(gone.tokens, 0)
            from (select 1) one left join (
                select e.cost, e.input_tokens + e.output_tokens as tokens from executions e
                where e.id = recorded.execution_id
            ) gone on true
            where c.run_id = r.id and c.content = asked.content and c.occurrence = wanted;
        else
            insert into run_calls (run_id, content, occurrence, id, step, execution_id, made_at)
            values (r.id, asked.content, wanted, longhaul_uuid(), asked.step, execution, longhaul_now());
        end if;
        -- The budget of the run takes the place of its own: that of its execution, if it has one.
        update executions e set has_budget = true, budget_id = b.root_id
        from budgets b
        where e.id = execution and b.root_id = coalesce(
            (
                select coalesce(x.budget_id, x.root_id, x.id) from executions x
                where x.id = r.execution_id and x.has_budget
            ),
            r.id
        );
    end if;
    insert into run_attempts as p (run_id, attempt, content, occurrence)
    values (r.id, asked.attempt, asked.content, wanted)
    on conflict (run_id, attempt, content) do update set occurrence = excluded.occurrence, is_delivered = false
    where p.occurrence <> excluded.occurrence or p.is_delivered;
    if is_new_place or is_new and not is_recorded then
        update runs x
        set calls = x.calls + (is_new and not is_recorded)::int, attempts = x.attempts + is_new_attempt::int,
            positions = x.positions + is_new_place::int
        where x.id = r.id;
    end if;
    return query select case when is_new then 'new' else 'known' end, wanted,
        case when is_new then execution else recorded.execution_id end,
        is_new_place or place.occurrence < wanted, r.status, left_over;
end
$$;
