-- Webhooks that were deleted, and whose deliveries are still to be removed, in portions.
create table removed_webhooks (
    endpoint_id uuid primary key,
    -- The last delivery that was removed.
    removed_to uuid not null default '00000000-0000-0000-0000-000000000000'
);
comment on table removed_webhooks is 'Deleted webhooks whose deliveries are being removed.';
