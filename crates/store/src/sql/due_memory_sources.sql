-- Those of sources $1 that are due to be looked at, each with what it is: there, over, with more to take; and
-- the time of the next look if it is not over. A session ends when it is idle for $2 seconds, explicitly, or by a
-- message that used up the agent's turns. An execution is looked at after a quarter of its age, $3 to $4 seconds, and
-- again $5 seconds after the submit of an update that took nothing.
with now as materialized (
    select longhaul_now() as now
)
select m.id, m.tenant_id, m.agent_key, m.agent_version_id, m.is_session,
    coalesce(s.id, e.id) is not null as "is_there!",
    coalesce(case
        when m.is_session then s.running is null and (
            s.ended_at is not null or s.active_at + $2 * interval '1 second' <= now.now or exists (
                select from session_turns t join executions x on x.id = t.execution_id
                where t.session_id = s.id and t.number = s.turns and x.failure_code = 'max_turns_exceeded'
            )
        )
        else e.finished_at is not null
    end, false) as "is_over!",
    m.noted > m.taken as "has_more!",
    case
        when m.is_session then greatest(s.active_at, now.now - ($2 - 60) * interval '1 second')
            + $2 * interval '1 second'
        else now.now + least(greatest((now.now - m.created_at) / 4, $3 * interval '1 second'), $4 * interval '1 second')
    end as "next_check!",
    now.now + $5 * interval '1 second' as "retry_at!"
from now, memory_sources m
left join sessions s on m.is_session and s.id = m.id
left join executions e on not m.is_session and e.id = m.id
where m.id = any ($1) and m.check_at <= now.now
order by m.check_at
for update of m skip locked
