-- Declares dead up to `most` workers whose lease expired. Declares none before the server has been up, and some
-- worker has renewed without a gap, for `lease` seconds: leases that expired while the server was down or did not
-- answer prove nothing (core-rules 4). Checked here, because a call sent before an outage may be executed after
-- it. A worker over HTTP renews through the API: while no other one has renewed without a gap, its lease proves nothing
-- either, until it has been expired for five leases.
create or replace function longhaul_bury(lease float8, most int) returns setof uuid
    language plpgsql volatile
    as $$
declare
    expired uuid;
begin
    if pg_postmaster_start_time() >= clock_timestamp() - lease * interval '1 second' or not exists (
        select from live_workers
        where expires_at > clock_timestamp() and steady_since < clock_timestamp() - lease * interval '1 second'
    ) then
        return;
    end if;
    for expired in
        select w.id from workers w
        where w.dead_at is null and w.id in (
            select l.id from live_workers l join workers x on x.id = l.id
            where l.expires_at < clock_timestamp() and (
                x.tenant_id is null or l.expires_at < clock_timestamp() - 5 * lease * interval '1 second' or exists (
                    select from workers y join live_workers o on o.id = y.id
                    where y.tenant_id is not null and y.dead_at is null and o.expires_at > clock_timestamp()
                        and o.steady_since < clock_timestamp() - lease * interval '1 second'
                )
            )
            order by l.id limit most
        )
        for update skip locked
    loop
        -- Checked again under the lock, which excludes a renewal under way. The heartbeat is in another row, so
        -- locking this one did not return its newest version.
        if exists (select from live_workers l where l.id = expired and l.expires_at < clock_timestamp()) then
            perform longhaul_retire(expired);
            return next expired;
        end if;
    end loop;
end
$$;
