-- Chooses and locks the next executions in fair order: at most `scan.candidates`. Tenants are ordered by `scan.usage`:
-- permits held, then recent usage, as one number (crates/store/src/fleet/shares.rs). Within a tenant the queue
-- `interactive` is first: a person waits there. Tenants are ordered by their use all the same, so no tenant's messages
-- hold up another's work. Executions that another claim has locked are skipped, not waited for.
drop function if exists longhaul_weigh(claim_scan);
create or replace function longhaul_fair_order(scan claim_scan) returns uuid[]
    language plpgsql volatile
    as $$
#variable_conflict use_variable
declare
    -- Most tenants looked for in the gaps.
    max_found constant int := 200;
begin
    return (
    with line as materialized (
        select known.* from unnest(scan.lines) as known
        union all
        (
            select gap.queue, gap.serve_key, found.tenant_id, -9223372036854775808,
                '00000000-0000-0000-0000-000000000000'::uuid
            from unnest(scan.gaps) as gap
            cross join lateral longhaul_tenants_in_line(gap.queue, gap.serve_key, 0::smallint, gap.above, gap.below)
                as found (tenant_id)
            limit max_found
        )
    ),
    -- The started executions of each line and its new ones, each with the place behind which they are taken. A started
    -- execution that came back may be older than the one taken last.
    half as materialized (
        select line.queue, line.serve_key, line.tenant_id, false as is_new, -9223372036854775808 as after_rank,
            '00000000-0000-0000-0000-000000000000'::uuid as after_id
        from line
        union all
        select line.queue, line.serve_key, line.tenant_id, true, line.after_rank, line.after_id from line
    ),
    -- Number of each half's executions that would be next, read without locks, so that those not taken block no
    -- other claim. A single line needs no such look: all that is taken is its own.
    wanted as materialized (
        select half.*, scan.candidates::bigint as n from half where (select count(*) from line) = 1
        union all
        select next.queue, next.serve_key, next.tenant_id, next.is_new, next.after_rank, next.after_id, count(*)
        from (
            select c.*
            from (
                select half.*, half.queue <> 'interactive' as is_batch, head.rank, head.id
                from half cross join lateral (
                    select longhaul_claim_rank(x.created_at, x.priority) as rank, x.id
                    from executions x
                    where x.wait_reason = 'worker' and x.queue = half.queue and x.serve_key = half.serve_key
                        and x.lane = 0 and x.tenant_id = half.tenant_id and (x.started_at is null) = half.is_new
                        and (longhaul_claim_rank(x.created_at, x.priority), x.id) > (half.after_rank, half.after_id)
                    order by longhaul_claim_rank(x.created_at, x.priority), x.id
                    limit scan.per_tenant
                ) head
            ) c
            left join unnest(scan.usage) as used on used.tenant_id = c.tenant_id
            where (select count(*) from line) > 1
            -- As in `picked`.
            order by coalesce(used.tokens, 0)
                + scan.usual * row_number() over (
                    partition by c.tenant_id order by c.is_batch, c.is_new, c.rank, c.id
                ),
                c.is_batch, c.is_new, c.rank, c.id
            limit scan.candidates
        ) next
        group by next.queue, next.serve_key, next.tenant_id, next.is_new, next.after_rank, next.after_id
    ),
    candidate as materialized (
        select e.* from wanted cross join lateral (
            select x.id, x.tenant_id, x.lane, x.queue <> 'interactive' as is_batch,
                (x.started_at is null) as is_new,
                longhaul_claim_rank(x.created_at, x.priority) as rank, scan.candidates as lane_room
            from executions x
            where x.wait_reason = 'worker' and x.queue = wanted.queue and x.serve_key = wanted.serve_key and x.lane = 0
                and x.tenant_id = wanted.tenant_id and (x.started_at is null) = wanted.is_new
                and (longhaul_claim_rank(x.created_at, x.priority), x.id) > (wanted.after_rank, wanted.after_id)
            order by longhaul_claim_rank(x.created_at, x.priority), x.id
            limit wanted.n
            for update skip locked
        ) e
        union all
        select s.* from unnest(scan.suspects) as suspect cross join lateral (
            select x.id, x.tenant_id, x.lane, x.queue <> 'interactive', (x.started_at is null),
                longhaul_claim_rank(x.created_at, x.priority), suspect.room
            from executions x
            where x.wait_reason = 'worker' and x.id = any (array(
                select head.id
                from (
                    select tenant.id as tenant_id
                    from longhaul_tenants_in_line(
                        suspect.queue, suspect.serve_key, suspect.lane, '00000000-0000-0000-0000-000000000000',
                        'ffffffff-ffff-ffff-ffff-ffffffffffff'
                    ) as tenant (id)
                    limit max_found
                ) found cross join lateral (
                    select x.id, row_number() over (
                        order by (x.started_at is null), longhaul_claim_rank(x.created_at, x.priority), x.id
                    ) as place
                    from executions x
                    where x.wait_reason = 'worker' and x.queue = suspect.queue and x.serve_key = suspect.serve_key
                        and x.lane = suspect.lane and x.tenant_id = found.tenant_id
                    order by (x.started_at is null), longhaul_claim_rank(x.created_at, x.priority), x.id
                    limit suspect.room
                ) head
                order by scan.usual * head.place + coalesce((
                    select used.tokens from unnest(scan.usage) as used where used.tenant_id = found.tenant_id
                ), 0)
                limit suspect.room
            ))
            for update skip locked
        ) s
    ),
    picked as (
        select placed.* from (
            -- A lane has one room for all queues and serve keys together.
            select shared.*,
                row_number() over (
                    partition by shared.lane order by share, shared.is_batch, shared.is_new, rank, shared.id
                ) as place_in_lane
            from (
                select c.*, coalesce(used.tokens, 0)
                    + scan.usual * row_number() over (
                        partition by c.tenant_id order by c.is_batch, c.is_new, c.rank, c.id
                    ) as share
                from candidate c
                left join unnest(scan.usage) as used on used.tenant_id = c.tenant_id
            ) shared
        ) placed
        where placed.place_in_lane <= placed.lane_room
        order by share, placed.is_batch, placed.is_new, rank, placed.id
        limit scan.candidates
    )
    select array_agg(picked.id order by share, picked.is_batch, picked.is_new, rank, picked.id) from picked
    );
end
$$;
