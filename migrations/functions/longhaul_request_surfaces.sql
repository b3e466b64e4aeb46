-- Tells the root of a tree of a request of one of its descendants to people or to the caller, and of the decision, so
-- that followers of the root hear of it. A statement that stores requests of many executions locks their roots first.
-- Lock order: the execution (the caller's), then the root.
create or replace function longhaul_request_surfaces() returns trigger
    language plpgsql volatile
    as $$
declare
    top uuid := (select e.root_id from executions e where e.id = new.execution_id);
    number int;
begin
    if top is null then
        return null;
    end if;
    update executions set event_seq = event_seq + 1 where id = top and finished_at is null
    returning event_seq into number;
    if number is null then
        return null;
    end if;
    insert into events (execution_id, seq, at, kind, data)
    select top, number, longhaul_now(), case when waits then 'child_request' else 'child_request_decided' end,
        jsonb_strip_nulls(jsonb_build_object(
            'child_id', new.execution_id, 'id', new.id, 'request', new.kind, 'call_id', new.call_id, 'tool', new.tool,
            'policy', new.policy, 'expires_at', case when waits then new.expires_at end,
            'decision', case when not waits then new.state end
        ))
    from (select new.state = 'waiting' as waits) is_new;
    return null;
end
$$;

create or replace trigger human_requests_surface after insert or update of state on human_requests
    for each row
    -- The end of a child is told as such.
    when (new.state <> 'closed')
    execute function longhaul_request_surfaces();
