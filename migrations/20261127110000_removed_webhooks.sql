-- Webhooks that were deleted, and whose deliveries are still to be removed, in portions.
create table removed_webhooks (
    endpoint_id uuid primary key
);
comment on table removed_webhooks is 'Deleted webhooks whose deliveries are being removed.';
