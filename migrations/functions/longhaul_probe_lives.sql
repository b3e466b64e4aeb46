-- Returns true if the chosen probe can still answer: it was chosen recently and is in this line or has begun to
-- ask, or it runs under the lease with which it asked. Workers with other addresses or keys have other breakers
-- (docs/adr/0012-provider-health.md), so a released execution may be in another line.
create or replace function longhaul_probe_lives(b provider_breakers, now timestamptz) returns boolean
    language sql stable
    as $$
        select b.probe_execution is not null and (
            b.probe_until > now and (
                b.probe_token is not null
                or exists (
                    select from provider_waits w
                    where w.execution_id = b.probe_execution
                        and (w.provider, w.model, w.key) = (b.provider, b.model, b.key)
                )
            )
            or exists (
                select from executions e
                where e.id = b.probe_execution and e.worker_id is not null and e.lease_token = b.probe_token
            )
        )
    $$;
