-- Rows of every kind that a duty of the sweep or a search for due rows looks for, none of them due: as many of each as
-- the setting `longhaul.rows` says. Not through the triggers, and not all of it could be made by the product; each
-- duty is measured by what it reads beside its own kind. One script, in one session.
set session_replication_role = replica;
set synchronous_commit = off;
do $$
declare
    one record;
begin
    for one in select c.oid::regclass as name from pg_class c
        where c.relnamespace = 'public'::regnamespace and c.relkind = 'r'
    loop
        execute format('alter table %s set (autovacuum_enabled = off)', one.name);
    end loop;
end
$$;

create function pg_temp.n() returns bigint language sql stable as $$ select current_setting('longhaul.rows')::bigint $$;
-- The id of the row `g` of a kind, made now.
select set_config('longhaul.prefix', left(longhaul_uuid_floor(now())::text, 14) || '7', false);
create function pg_temp.id(kind int, g bigint) returns uuid language sql stable as $$
    select (current_setting('longhaul.prefix') || lpad(to_hex(kind), 3, '0') || '-8000-'
        || lpad(to_hex(g), 12, '0'))::uuid
$$;
create function pg_temp.soon() returns timestamptz language sql stable as $$ select now() + interval '1 day' $$;

insert into tenants (id, org_id, created_at) values (pg_temp.id(0, 0), 'not due', now());
insert into workers (id, host, pid, build, queues, serves, concurrency)
select pg_temp.id(1, g), 'host', 1, 'build', '{default}', '{""}', 1000 from generate_series(1, 10) g;
insert into worker_heartbeats (worker_id, expires_at, steady_since)
select pg_temp.id(1, g), pg_temp.soon(), now() - interval '1 hour' from generate_series(1, 10) g;
-- Dead ones, which hold nothing.
insert into workers (id, host, pid, build, queues, serves, concurrency, dead_at, emptied_at)
select pg_temp.id(2, g), 'host', 1, 'build', '{default}', '{""}', 1000, pg_temp.soon(), now()
from generate_series(1, pg_temp.n()) g;

-- Executions: 10 scheduled children of 11, 12 runnable, 13 held, 14 without a worker, 15 held back.
insert into executions (
    id, tenant_id, definition_key, definition_version_id, agent_key, agent_version_id, queue, serve_key, priority,
    created_at, deadline_at, active_timeout, status, started_at, wait_reason, wait_until, worker_id, lease_token,
    claimed_at, active_until, parent_id, root_id, depth, spawn_key
)
select pg_temp.id(kind.kind, g), pg_temp.id(0, 0), 'd', pg_temp.id(0, 1), 'a', pg_temp.id(0, 2), kind.queue,
    kind.serve_key, 5, now(), now() + interval '30 days', '1 hour', kind.status::execution_status,
    case when kind.status = 'IN_PROGRESS' then now() end, kind.reason,
    case when kind.reason <> 'worker' then pg_temp.soon() end,
    case when kind.kind = 13 then pg_temp.id(1, 1 + g % 10) end,
    case when kind.kind = 13 then pg_temp.id(13, g) end, case when kind.kind = 13 then now() end,
    case when kind.kind = 13 then pg_temp.soon() end, case when kind.kind = 10 then pg_temp.id(11, g) end,
    case when kind.kind = 10 then pg_temp.id(11, g) end, (kind.kind = 10)::int,
    case when kind.kind = 10 then '\x00'::bytea end
from (values
    (10, 'default', '', 'PENDING', 'scheduled'), (11, 'default', '', 'IN_PROGRESS', 'children'),
    (12, 'default', '', 'PENDING', 'worker'), (13, 'default', '', 'IN_PROGRESS', null),
    (14, 'elsewhere', 'nobody', 'PENDING', 'no_worker'), (15, 'default', '', 'PENDING', 'queue_paused')
) as kind (kind, queue, serve_key, status, reason), generate_series(1, pg_temp.n()) g;
insert into parked (execution_id, tenant_id, wait_reason, wait_until)
select id, tenant_id, wait_reason, wait_until from executions where wait_reason <> 'worker';
-- The held ones stand for those that wait for a provider, too.
insert into parked (execution_id, tenant_id, wait_reason, wait_until)
select pg_temp.id(13, g), pg_temp.id(0, 0), 'provider_down', pg_temp.soon() from generate_series(1, pg_temp.n()) g;
insert into deadlines (execution_id, deadline_at)
select pg_temp.id(10, g), pg_temp.soon() from generate_series(1, pg_temp.n()) g;

-- Requests to people: not over yet, and decided long ago.
insert into human_requests (
    id, execution_id, tenant_id, agent_key, kind, call_key, round, call_id, tool, arguments, shown, hash, allow_self,
    requested_at, expires_at, state, decided_at, decided_key_id
)
select pg_temp.id(20 + kind.kind, g), pg_temp.id(11, g), pg_temp.id(0, 0), 'a', 'approval',
    decode(repeat('00', 32), 'hex'), kind.kind, 'c', 't', '\x00', '', decode(repeat('00', 32), 'hex'), false, now(),
    pg_temp.soon(), kind.state, case when kind.kind = 1 then now() - interval '3 hours' end,
    case when kind.kind = 1 then pg_temp.id(0, 3) end
from (values (0, 'waiting'), (1, 'approved')) as kind (kind, state), generate_series(1, pg_temp.n()) g;

-- Budgets that have no room, each with a call that waits.
insert into budgets (root_id, tenant_id, max_calls, on_exhausted)
select pg_temp.id(12, g), pg_temp.id(0, 0), 0, 'park' from generate_series(1, pg_temp.n()) g;
insert into reservations (execution_id, step_key, root_id, state, asked_at, tokens)
select pg_temp.id(12, g), decode(repeat('00', 32), 'hex'), pg_temp.id(12, g), 'waiting', now(), 1
from generate_series(1, pg_temp.n()) g;

-- A full limit: slots that are held, and its line; keys used lately, and usage of this day.
insert into limit_rules (id, source, expression, max, changed_at)
values (pg_temp.id(0, 4), 'operator', 'tenant', 0, now());
insert into slot_keys (key, rule_id, value, made, used_at)
select 'key ' || g, pg_temp.id(0, 4), g, 0, pg_temp.soon() from generate_series(1, pg_temp.n()) g;
insert into slots (key, number, execution_id, tenant_id, since)
select 'key 1', g, pg_temp.id(13, g), pg_temp.id(0, 0), now() from generate_series(1, pg_temp.n()) g;
insert into slot_waiters (execution_id, tenant_id, keys, key, is_new, rank, since)
select pg_temp.id(14, g), pg_temp.id(0, 0), array['key ' || g], 'key ' || g, true, g, now()
from generate_series(1, pg_temp.n()) g;
insert into tenant_usage (tenant_id, tokens, at)
select pg_temp.id(3, g), 1, now() - interval '3 hours' from generate_series(1, pg_temp.n()) g;
insert into suspect_notes (execution_id, worker_id, attempt, phase, at)
select pg_temp.id(13, g), pg_temp.id(1, 1), 1, '', pg_temp.soon() from generate_series(1, pg_temp.n()) g;

-- A model endpoint that is away, with its line; others that failed, and rates.
insert into provider_breakers (provider, model, key, state, cause, since, open_until)
values ('p', 'away', 'k', 'open', 'outage', now(), pg_temp.soon());
insert into provider_breakers (provider, model, key, since)
select 'p', 'm' || g, 'k', now() from generate_series(1, pg_temp.n()) g;
insert into provider_waits (execution_id, provider, model, key, reason, priority, since, give_up_at)
select pg_temp.id(13, g), 'p', 'away', 'k', 'provider_down', 5, now(), pg_temp.soon()
from generate_series(1, pg_temp.n()) g;
insert into provider_failures (execution_id, lease_token, provider, model, key, class, at)
select pg_temp.id(13, g), pg_temp.id(13, g), 'p', 'm' || g, 'k', 'transient', pg_temp.soon()
from generate_series(1, pg_temp.n()) g;
insert into provider_rates (provider, model, key, requests_at, tokens_at)
select 'p', 'm' || g, 'k', now(), now() from generate_series(1, pg_temp.n()) g;

-- A group in quarantine whose callers have given up.
insert into quarantine_groups (
    tenant_id, definition_version_id, agent_version_id, definition_key, agent_key, queues, state, died_builds,
    held_since, changed_at
)
values (pg_temp.id(0, 0), pg_temp.id(0, 5), pg_temp.id(0, 6), 'd', 'a', '{default}', 'shut', '{other}', null,
    now());
insert into quarantine (
    execution_id, tenant_id, definition_key, definition_version_id, agent_key, agent_version_id, queue,
    quarantined_at, deadline_at, is_child, deaths, phase
)
select pg_temp.id(16, g), pg_temp.id(0, 0), 'd', pg_temp.id(0, 5), 'a', pg_temp.id(0, 6), 'default',
    now() - interval '9 days', now() - interval '1 day', false, '[]', ''
from generate_series(1, pg_temp.n()) g;
-- The one that keeps the group.
insert into quarantine (
    execution_id, tenant_id, definition_key, definition_version_id, agent_key, agent_version_id, queue,
    quarantined_at, deadline_at, is_child, deaths, phase
)
values (pg_temp.id(17, 1), pg_temp.id(0, 0), 'd', pg_temp.id(0, 5), 'a', pg_temp.id(0, 6), 'nowhere',
    now() - interval '9 days', pg_temp.soon(), false, '[]', '');
update quarantine_groups set queues = '{nowhere}';
-- Executions held back belong to a group that is held.
insert into quarantine_groups (
    tenant_id, definition_version_id, agent_version_id, definition_key, agent_key, queues, state, canary, died_builds,
    held_since, changed_at
)
values (pg_temp.id(9, 9), pg_temp.id(0, 1), pg_temp.id(0, 2), 'd', 'a', '{nowhere}', 'canary', pg_temp.id(13, 1),
    '{other}', now(), now());
update executions set tenant_id = pg_temp.id(9, 9) where wait_reason = 'queue_paused';

-- Keys of this day.
insert into idempotency_keys (tenant_id, key, execution_id, request_hash, created_at)
select pg_temp.id(0, 0), g, pg_temp.id(12, g), '\x00', now() from generate_series(1, pg_temp.n()) g;
insert into kept_answers (tenant_id, place, key, claim, request_hash, subjects, status, body, created_at)
select pg_temp.id(0, 0), '\x00', g, pg_temp.id(12, g), '\x00', array[g::text], 200, '\x00', now()
from generate_series(1, pg_temp.n()) g;
insert into serve_keys (key, requirements, put_at)
select 'key ' || g, '{other}', now() from generate_series(1, pg_temp.n()) g;

-- Files.
insert into file_bodies (tenant_id, hash, bytes, body, created_at, check_at)
select pg_temp.id(0, 0), sha256(int8send(g)), 1, '\x00', now(), pg_temp.soon()
from generate_series(1, pg_temp.n()) g;
insert into files (id, tenant_id, hash, media_type, bytes, created_at, expires_at)
select pg_temp.id(30, g), pg_temp.id(0, 0), sha256(int8send(g)), 't', 1, now(), pg_temp.soon()
from generate_series(1, pg_temp.n()) g;
insert into file_leftovers (object_key, due_at) select g, pg_temp.soon() from generate_series(1, pg_temp.n()) g;

-- Memory.
insert into memory_sources (
    id, tenant_id, agent_key, agent_version_id, scope, is_session, taken, noted, created_at, check_at
)
select pg_temp.id(31, g), pg_temp.id(0, 0), 'a', pg_temp.id(0, 2), '', true, 0, 1, now(), pg_temp.soon()
from generate_series(1, pg_temp.n()) g;
insert into memory_updates (execution_id, source_id)
select pg_temp.id(12, g), pg_temp.id(31, g) from generate_series(1, pg_temp.n()) g;
insert into memory_episodes (
    id, tenant_id, agent_key, scope, execution_id, call_key, exchange, content, hash, created_at, updated_at
)
select pg_temp.id(32, g), pg_temp.id(0, 0), 'a', '', pg_temp.id(32, g), '\x00', 1, 'said', '\x00', now(),
    now()
from generate_series(1, pg_temp.n()) g;

-- Schedules and their history. Projects: of each tenant ten that run, which is as many as may, and ten that wait for
-- their turn.
insert into schedules (id, tenant_id, key, spec, created_at, updated_at, anchored_at, next_fire_at)
select pg_temp.id(33, g), pg_temp.id(0, 0), g, '{}', now(), now(), now(), pg_temp.soon()
from generate_series(1, pg_temp.n()) g;
insert into schedule_firings (schedule_id, tick, kind, first_tick, state, execution_id, fired_at)
select pg_temp.id(33, g), now(), 'tick', now(), 'over', pg_temp.id(33, g), now()
from generate_series(1, pg_temp.n()) g;
insert into projects (
    id, tenant_id, name, goal, agent_key, execution_strategy, max_parallel_tasks, needs_approval, queue, metadata,
    created_at, deadline_at, status, line_at
)
select pg_temp.id(34 + kind.kind, g), pg_temp.id(3, (g - 1) / 10), 'n', 'g', 'a', 'dag', 1, false, 'default', '{}',
    now(), pg_temp.soon(), kind.status, case when kind.kind = 1 then now() end
from (values (0, 'in_progress'), (1, 'approved')) as kind (kind, status), generate_series(1, pg_temp.n()) g;

-- Ends that were reacted to in vain, and are tried again later.
insert into ends (tenant_id, execution_id, event, project_id, occurred_at, reactions, attempts, next_at)
select pg_temp.id(0, 0), pg_temp.id(12, g), 'execution.finished', pg_temp.id(34, g), now(),
    '{session,project,schedule,webhook,memory}', g % 2, pg_temp.soon()
from generate_series(1, pg_temp.n()) g;

-- Webhooks: an endpoint whose deliveries wait, and what was delivered; the audit log.
insert into webhook_endpoints (id, tenant_id, url, types, created_at, delivered_at)
values (pg_temp.id(0, 7), pg_temp.id(0, 0), 'https://example.invalid', '{}', now(), now());
insert into webhook_deliveries (id, endpoint_id, type, occurred_at, next_at, expires_at, delivered_at)
select pg_temp.id(36 + kind.kind, g), pg_temp.id(0, 7), 't', now(),
    case when kind.kind = 0 then pg_temp.soon() end, pg_temp.soon(), case when kind.kind = 1 then now() end
from (values (0), (1)) as kind (kind), generate_series(1, pg_temp.n()) g;
insert into audit_log (id, at, tenant_id, actor_kind, actor_id, actor_name, method, route, request_id)
select pg_temp.id(38, g), now(), pg_temp.id(0, 0), 'key', pg_temp.id(0, 3), 'k', 'POST', '/', ''
from generate_series(1, pg_temp.n()) g;

-- Runs that are open, and that have ended; executions that are not stored and whose time is not over.
insert into runs (id, tenant_id, key, status, created_at, opened_at, deadline_at, ended_at)
select pg_temp.id(39 + kind.kind, g), pg_temp.id(0, 0), kind.kind || ' ' || g, kind.status, now(), now(),
    pg_temp.soon(), case when kind.kind = 1 then now() end
from (values (0, 'open'), (1, 'finished')) as kind (kind, status), generate_series(1, pg_temp.n()) g;
insert into unstored (execution_id, keep_until)
select pg_temp.id(12, g), pg_temp.soon() from generate_series(1, pg_temp.n()) g;
