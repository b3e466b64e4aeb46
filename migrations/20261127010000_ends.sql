-- The outbox of what follows an end (docs/design/end.md): ends of executions, requests to people and to callers,
-- quarantined executions, and reasons to look at a project. No row refers to another table by a constraint, so that
-- nothing but the row itself is needed to write it.

create table ends (
    id bigint generated always as identity primary key,
    tenant_id uuid not null,
    -- Null for a reason to look at a project that is no end.
    execution_id uuid,
    -- What happened, by its name in webhooks.
    event text not null,
    -- The approval, question or call that waits for an answer.
    request_id uuid,
    -- Project of the execution.
    project_id uuid,
    occurred_at timestamptz not null,
    -- Reactions that have not taken the row, by name. The last one deletes it.
    reactions text[] not null,
    -- A reaction that failed has a row of its own: its failures, the next try, and the last error.
    attempts int not null default 0,
    next_at timestamptz not null,
    error text
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- Work list of each reaction.
create index ends_session on ends (next_at) where 'session' = any (reactions);
create index ends_project on ends (next_at) where 'project' = any (reactions);
create index ends_schedule on ends (next_at) where 'schedule' = any (reactions);
create index ends_webhook on ends (next_at) where 'webhook' = any (reactions);
create index ends_memory on ends (next_at) where 'memory' = any (reactions);
-- All that a project has to look at.
create index ends_of_project on ends (project_id) where 'project' = any (reactions);
-- Rows whose reaction failed.
create index ends_failing on ends (id) where attempts > 0;

-- Events of which a tenant's webhooks and channels are told. The end of an execution reads this table instead of
-- theirs, which others lock and delete; `longhaul_subscribe` keeps it.
create table end_subscriptions (
    tenant_id uuid not null,
    event text not null,
    primary key (tenant_id, event)
);
insert into end_subscriptions (tenant_id, event)
select distinct tenant_id, unnest(types) from webhook_endpoints where disabled_at is null;

-- A reaction writes deliveries after the end of the execution. An endpoint that is deleted meanwhile must not refuse
-- them; deliveries without an endpoint are removed in portions.
alter table webhook_deliveries drop constraint webhook_deliveries_endpoint_id_fkey;

-- True if memory takes what the execution says: its end is followed by an update of the memory.
alter table executions add column has_memory boolean not null default false;

comment on table ends is 'What has ended or been asked, and the reactions that are still to come.';
comment on table end_subscriptions is 'Events of which a tenant wants to be told.';
