-- Calls per second that the fleet has learned an endpoint takes (docs/adr/0071-paced-calls.md). `concurrency` and
-- `closed_until` are learned likewise, and written down once a second.
alter table provider_breakers add column if not exists calls_per_second float8;
-- Calls that it answered per second lately, while executions wait for it.
alter table provider_breakers add column if not exists served_per_second float8;

-- Tenants take turns in the line of a full endpoint, in the order of their ids after the one that was last.
alter table provider_waits add column if not exists tenant_id uuid;
alter table provider_waits add column if not exists is_batch boolean;
alter table provider_breakers add column if not exists line_turn uuid;
create index if not exists provider_waits_turns
    on provider_waits (provider, model, key, tenant_id, is_batch, priority desc, execution_id)
    where reason = 'rate_limit' and pass_at is null and not is_released;
