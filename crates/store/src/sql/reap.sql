-- Takes back executions held by dead workers, $1 at a time. An execution held at three deaths, the last one with
-- no other suspect in the same process, is the cause: it ends as FAILED `crash_loop` (core-rules 5) and is
-- quarantined with the record of its deaths (docs/adr/0019-quarantine.md). One to be cancelled ends as FAILED
-- `cancelled`. All others become runnable.
with now as materialized (
    select longhaul_now() as now
),
orphan as materialized (
    select e.id, e.worker_id, e.lease_token, e.attempt, e.claimed_at, e.tenant_id, e.definition_key, e.agent_key,
        e.created_at,
        e.event_seq, e.cancel_requested_at, e.crash_count + 1 as crashes, e.definition_version_id, e.agent_version_id,
        e.queue,
        e.deadline_at, e.parent_id is not null as is_child, dead.suspects, dead.host, dead.build, dead.memory_bytes,
        -- Time without a holder: hours after a restore, or if no worker was left to reap.
        greatest(clock_timestamp() - lease.expires_at, interval '0') as unheld
    from workers dead
    join executions e on e.worker_id = dead.id
    left join lateral (
        select h.expires_at from worker_heartbeats h where h.worker_id = dead.id order by h.expires_at desc limit 1
    ) lease on true
    where dead.dead_at is not null and dead.emptied_at is null
        and (e.parent_id is null or longhaul_try_lock(e.parent_id))
    limit $1
    for update of e skip locked
),
verdict as materialized (
    select orphan.*, now.now,
        case
            when cancel_requested_at is not null then 'cancelled'
            -- Counted at the death: fewer of the worker's executions may be left by now (core-rules 25).
            when crashes >= 3 and suspects = 1 then 'crash_loop'
        end as failure_code
    from now, orphan
),
convicted as materialized (
    select v.*, last.step as last_step,
        coalesce(note.phase, case
            when last.step is null then 'before its first step'
            when last.step ->> 'kind' = 'turn' and last.step ->> 'state' = 'intent'
                then 'while the model''s reply streamed'
            when last.step ->> 'kind' = 'turn' then 'in a call of turn ' || last.turns || ', or in what follows it'
            when last.step ->> 'state' = 'intent' then 'in a call of ' || coalesce(last.step ->> 'name', 'a tool')
            else 'after the step ' || (last.step ->> 'kind') || ' ' || (last.step ->> 'seq')
        end) as phase,
        coalesce(v.memory_bytes, note.memory_bytes) as last_memory,
        (
            select jsonb_agg(deaths.death order by deaths.at)
            from (
                (
                    select s.at, jsonb_strip_nulls(jsonb_build_object(
                        'at', s.at, 'attempt', s.data -> 'attempt', 'worker_id', s.data -> 'worker_id', 'host',
                        s.data -> 'host',
                        'build', s.data -> 'build', 'memory_bytes', s.data -> 'memory_bytes'
                    )) as death
                    from events s
                    where s.execution_id = v.id and s.kind = 'lease_lost'
                    order by s.seq desc
                    limit v.crashes - 1
                )
                union all
                select v.now, jsonb_strip_nulls(jsonb_build_object(
                    'at', v.now, 'attempt', v.attempt, 'worker_id', v.worker_id, 'host', v.host, 'build', v.build,
                    'memory_bytes', coalesce(v.memory_bytes, note.memory_bytes)
                ))
            ) deaths
        ) as deaths
    from verdict v
    left join suspect_notes note on note.execution_id = v.id and note.worker_id = v.worker_id
    left join lateral (
        select jsonb_strip_nulls(jsonb_build_object('seq', s.seq, 'kind', s.kind, 'state', s.state, 'name',
            s.name)) as step,
            (select count(*) from steps t where t.execution_id = v.id and t.kind = 'turn'
                and t.state <> 'spent') as turns
        from steps s
        where s.execution_id = v.id
        order by s.seq desc
        limit 1
    ) last on true
    where v.failure_code = 'crash_loop'
),
quarantined as (
    insert into quarantine (
        execution_id, tenant_id, definition_key, definition_version_id, agent_key, agent_version_id, queue,
        quarantined_at,
        deadline_at, is_child, deaths, last_step, phase, memory_bytes
    )
    select id, tenant_id, definition_key, definition_version_id, agent_key, agent_version_id, queue, now, deadline_at,
        is_child,
        deaths, last_step, phase, last_memory
    from convicted
),
grouped as (
    -- A canary that died shuts its group again, and so does a released execution that killed a build not in the
    -- record.
    insert into quarantine_groups as g (
        tenant_id, definition_version_id, agent_version_id, definition_key, agent_key, queues, state, died_builds,
        changed_at
    )
    select tenant_id, definition_version_id, agent_version_id, min(definition_key), min(agent_key),
        array_agg(distinct queue),
        'shut', array_agg(distinct build), min(now)
    from convicted
    group by 1, 2, 3
    on conflict (tenant_id, definition_version_id, agent_version_id) do update
    set state = case
            when g.canary in (select id from convicted) then 'shut'
            when g.state = 'releasing' and not excluded.died_builds <@ g.died_builds then 'shut'
            else g.state
        end,
        canary = case when g.canary in (select id from convicted) then null else g.canary end,
        died_builds = array(
            select kept.build
            from (
                select b.build, b.place
                from unnest(g.died_builds || array(select x from unnest(excluded.died_builds) x
                    where x <> all (g.died_builds)))
                    with ordinality as b (build, place)
                order by b.place desc
                limit 8
            ) kept
            order by kept.place
        ),
        queues = array(select distinct q from unnest(g.queues || excluded.queues) q order by q),
        changed_at = excluded.changed_at
),
ended as (
    insert into attempts (
        execution_id, number, worker_id, lease_token, started_at, ended_at, outcome, failure_class, failure_code,
        wait_reason
    )
    select id, attempt, worker_id, lease_token, claimed_at, now, 'lost',
        case when failure_code is not null then 'permanent' end,
        failure_code, case when failure_code is null then 'worker' end
    from verdict
),
told as (
    insert into events (execution_id, seq, at, kind, data)
    select id, event_seq + 1, now, case when failure_code is null then 'lease_lost' else 'failed' end,
        jsonb_strip_nulls(jsonb_build_object(
            'attempt', attempt, 'worker_id', worker_id, 'crashes', crashes, 'failure_code', failure_code, 'host', host,
            'build', build, 'memory_bytes', memory_bytes
        ))
    from verdict
),
said as (
    update execution_payloads p
    set failure_summary = case verdict.failure_code
            when 'cancelled' then 'cancelled on request'
            else 'the execution was running when ' || jsonb_array_length(convicted.deaths)
                || case when jsonb_array_length(convicted.deaths) = 1 then ' worker' else ' workers' end
                || ' died, the last time as the only suspect, ' || convicted.phase
        end,
        failure_detail = case verdict.failure_code when 'crash_loop' then json_build_object(
            'phase', convicted.phase, 'last_step', convicted.last_step, 'memory_bytes', convicted.last_memory,
            'deaths', convicted.deaths
        ) end
    from verdict left join convicted on convicted.id = verdict.id
    where p.execution_id = verdict.id and verdict.failure_code is not null
),
closed as (
    update human_requests r set state = 'closed', decided_at = verdict.now
    from verdict
    where r.execution_id = verdict.id and r.state = 'waiting' and verdict.failure_code is not null
),
no_deadline as (
    delete from deadlines d using verdict where d.execution_id = verdict.id and verdict.failure_code is not null
),
counts as (
    insert into execution_count_changes (tenant_id, definition_key, agent_key, day, status, n)
    select v.tenant_id, v.definition_key, v.agent_key, (v.created_at at time zone 'UTC')::date, s.status, sum(s.n)
    from verdict v, (values ('IN_PROGRESS'::execution_status, -1), ('FAILED'::execution_status, 1)) as s (status, n)
    where v.failure_code is not null
    group by 1, 2, 3, 4, 5
)
update executions e
set status = case when v.failure_code is null then 'IN_PROGRESS' else 'FAILED' end::execution_status,
    wait_reason = case when v.failure_code is null then 'worker' end,
    worker_id = null, active_until = null,
    finished_at = case when v.failure_code is not null then v.now end,
    failure_class = case when v.failure_code is not null then 'permanent' end,
    failure_code = v.failure_code,
    crash_count = v.crashes,
    lane = case when v.crashes >= 3 then 2 when v.crashes = 2 then 1 else 0 end,
    active_time = e.active_time + greatest(v.now - v.unheld - v.claimed_at, interval '0'),
    event_seq = e.event_seq + 1
from verdict v
where e.id = v.id
returning e.id as "id!", e.queue as "queue!", v.worker_id as "worker_id!", e.failure_code,
    e.tenant_id as "tenant_id!", e.agent_key as "agent_key!", v.attempt as "attempt!", v.lease_token as "lease_token!",
    extract(epoch from v.now - v.claimed_at)::float8 as "held_for!", coalesce(e.root_id, e.id) as "root_id!",
    e.session_id, e.slot_keys,
    (select p.traceparent from execution_payloads p where p.execution_id = e.id) as traceparent
