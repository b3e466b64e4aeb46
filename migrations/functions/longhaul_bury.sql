-- Declares dead up to `most` workers whose lease ran out. None before the server has been up, and some worker has
-- renewed without a gap, for `lease` seconds: leases that ran out while it was down, or answered nobody, prove nothing
-- (core-rules 4). That is asked here because a call that was sent before such a time is carried out after it.
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
        where w.id in (select l.id from live_workers l where l.expires_at < clock_timestamp() order by l.id limit most)
            and w.dead_at is null
        for update skip locked
    loop
        -- Looked at again under the lock, which no renewal can be under way beside: the one before it is in another
        -- row, so the lock itself has brought no newer version of that.
        if exists (select from live_workers l where l.id = expired and l.expires_at < clock_timestamp()) then
            perform longhaul_retire(expired);
            return next expired;
        end if;
    end loop;
end
$$;
