-- Keeps `end_subscriptions` of a tenant whose webhooks change. One transaction of a tenant at a time, so that the last
-- endpoint of an event is removed and another one added in some order.
create or replace function longhaul_subscribe() returns trigger
    language plpgsql volatile
    as $$
declare
    tenant constant uuid := coalesce(new.tenant_id, old.tenant_id);
begin
    perform pg_advisory_xact_lock(hashtextextended('longhaul.subscriptions ' || tenant, 0));
    insert into end_subscriptions (tenant_id, event)
    select distinct tenant, unnest(w.types) from webhook_endpoints w
    where w.tenant_id = tenant and w.disabled_at is null
    on conflict do nothing;
    delete from end_subscriptions s
    where s.tenant_id = tenant and not exists (
        select from webhook_endpoints w
        where w.tenant_id = tenant and w.disabled_at is null and s.event = any (w.types)
    );
    return null;
end
$$;

create or replace trigger webhook_endpoints_come_and_go after insert or delete on webhook_endpoints
    for each row execute function longhaul_subscribe();

create or replace trigger webhook_endpoints_change after update of types, disabled_at on webhook_endpoints
    for each row
    when (old.types <> new.types or (old.disabled_at is null) <> (new.disabled_at is null))
    execute function longhaul_subscribe();
