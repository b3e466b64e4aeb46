-- Indexes by which each duty of the sweep and each search for due rows reads what is due, and little else
-- (core-rules 28, docs/adr/0065-a-clock-that-is-stable.md). On a database with millions of rows build them by hand
-- before the deploy, with `create index concurrently`.

-- Executions under way that spend the budget of a session: it is not deleted before they have ended.
create index if not exists executions_budget on executions (budget_id) where budget_id is not null;
-- Held executions by the end of their active time. In the place of `executions_held`, with one more column.
create index if not exists executions_held_until on executions (worker_id, active_until) where worker_id is not null;
drop index if exists executions_held;
-- Parked executions by what their wake asks about: a live worker, and a group that is held back.
create index if not exists executions_unserved on executions (queue, serve_key, id) where wait_reason = 'no_worker';
create index if not exists executions_held_back
    on executions (tenant_id, definition_version_id, agent_version_id, id) where wait_reason = 'queue_paused';
-- Parked executions of one reason, for the nets that walk over them. In the place of `parked_held`.
create index if not exists parked_walk on parked (wait_reason, execution_id);
drop index if exists parked_held;

-- A range of BRIN keeps the time of a key that was deleted, and with the space also its newer keys are read.
create index if not exists idempotency_keys_created on idempotency_keys (created_at);
drop index if exists idempotency_keys_age;
create index if not exists serve_keys_put on serve_keys (put_at);
create index if not exists webhook_deliveries_expiry on webhook_deliveries (expires_at) where next_at is not null;
create index if not exists slot_keys_idle on slot_keys (used_at);
create index if not exists suspect_notes_age on suspect_notes (at);

create index if not exists provider_failures_age on provider_failures (at);
create index if not exists provider_breakers_watched on provider_breakers (provider, model, key)
    where state <> 'closed' or concurrency is not null;
create index if not exists provider_breakers_closed on provider_breakers (closed_until) where closed_until is not null;
create index if not exists provider_breakers_idle on provider_breakers (coalesce(since, '-infinity'))
    where state = 'closed' and concurrency is null;
create index if not exists provider_rates_idle on provider_rates (greatest(requests_at, tokens_at));

-- Quarantined executions whose caller still waits, and those quarantined lately.
create index if not exists quarantine_waiting
    on quarantine (tenant_id, definition_version_id, agent_version_id, deadline_at)
    where released_as is null and withdrawn_at is null and not is_child;
create index if not exists quarantine_recent
    on quarantine (tenant_id, definition_version_id, agent_version_id, quarantined_at)
    where released_as is null and withdrawn_at is null;

-- Time at which a dead worker was seen to hold nothing: the reaper does not look at it again.
alter table workers add column emptied_at timestamptz;
create index if not exists workers_live on workers (id) where dead_at is null;
create index if not exists workers_to_reap on workers (id) where dead_at is not null and emptied_at is null;
create index if not exists workers_died on workers (dead_at) where dead_at is not null;
