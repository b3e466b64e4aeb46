-- Key that wrote a webhook or a channel last. What a revoked key left is listed, and its channels stop.
alter table webhook_endpoints add column if not exists written_by uuid;
create index if not exists schedules_writer on schedules (submitted_by) where submitted_by is not null;
create index if not exists session_turns_queued on session_turns (session_id, number) where state = 'queued';
alter table webhook_endpoints drop constraint if exists webhook_endpoints_disabled_because_check;
alter table webhook_endpoints add constraint webhook_endpoints_disabled_because_check
    check (disabled_because in ('caller', 'failures', 'gone', 'key_revoked'));
-- Id of the request that no caller chooses; `request_id` may be the caller's.
alter table audit_log add column if not exists own_request_id uuid;
