-- Keys that expire, are rotated, and tell of their last use. A process of the release before does not know of an
-- expiry: rotate keys once all API processes are of this one.
alter table api_keys add column expires_at timestamptz;
-- Written at most once a minute.
alter table api_keys add column last_used_at timestamptz;
-- Key that the newest rotation made in its place.
alter table api_keys add column replaced_by uuid;

create index api_keys_tenant on api_keys (tenant_id, created_at, id);
