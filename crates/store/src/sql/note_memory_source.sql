-- Notes that memory takes what execution $1 says, or its session, and returns the place; no row if the scope's path $2,
-- written $3, leads to no value. A session is looked at when it may be idle for $4 seconds, an execution after $5. What
-- a session said before its first noted message is not taken, nor what it said between one that was taken and this one.
-- A repeat changes nothing.
with place as materialized (
    select coalesce(e.session_id, e.id) as id, e.tenant_id, e.agent_key, e.agent_version_id,
        e.session_id is not null as is_session, coalesce(t.number, 1) as number, longhaul_now() as now,
        case
            when $3::text is null then ''
            when jsonb_typeof(coalesce(s.metadata, e.metadata) #> $2::text[]) in ('string', 'number', 'boolean')
                and char_length(coalesce(s.metadata, e.metadata) #>> $2) between 1 and 256
                -- A text that reads as a number or as true or false is quoted: 1 and "1" are two places.
                then $3 || '=' || case
                    when jsonb_typeof(coalesce(s.metadata, e.metadata) #> $2) = 'string'
                        and coalesce(s.metadata, e.metadata) #>> $2
                            ~ '^(-?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)?|true|false|".*)$'
                    then (coalesce(s.metadata, e.metadata) #> $2)::text
                    else coalesce(s.metadata, e.metadata) #>> $2
                end
        end as scope
    from executions e
    left join sessions s on s.id = e.session_id
    left join session_turns t on t.execution_id = e.id
    where e.id = $1
),
noted as (
    insert into memory_sources as m (
        id, tenant_id, agent_key, agent_version_id, scope, is_session, taken, noted, created_at, check_at
    )
    select id, tenant_id, agent_key, agent_version_id, scope, is_session, number - 1, number, now,
        now + case when is_session then $4::float8 else $5::float8 end * interval '1 second'
    from place where scope is not null
    on conflict (id) do update
    -- Messages since the last noted one were sent while memory was switched off.
    set taken = case when m.taken >= m.noted then greatest(m.taken, excluded.taken) else m.taken end,
        noted = greatest(m.noted, excluded.noted), check_at = coalesce(m.check_at, excluded.check_at)
),
followed as (
    -- The end of the execution makes the source due; that of a session is a matter of time.
    update executions e set has_memory = true from place
    where e.id = $1 and not place.is_session and place.scope is not null and not e.has_memory
)
select tenant_id as "tenant!: _", agent_key as "agent!", scope as "scope!" from place where scope is not null
