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
            cross join lateral (
                with recursive found (tenant_id) as (
                    (
                        select x.tenant_id from executions x
                        where x.wait_reason = 'worker' and x.queue = gap.queue and x.serve_key = gap.serve_key
                            and x.lane = 0
                            and x.tenant_id > gap.above and x.tenant_id < gap.below
                        order by x.tenant_id, (x.started_at is null), longhaul_claim_rank(x.created_at, x.priority),
                            x.id
                        limit 1
                    )
                    union all
                    select next.tenant_id from found cross join lateral (
                        select x.tenant_id from executions x
                        where x.wait_reason = 'worker' and x.queue = gap.queue and x.serve_key = gap.serve_key
                            and x.lane = 0
                            and x.tenant_id > found.tenant_id and x.tenant_id < gap.below
                        order by x.tenant_id, (x.started_at is null), longhaul_claim_rank(x.created_at, x.priority),
                            x.id
                        limit 1
                    ) next
                )
                select found.tenant_id from found
            ) found
            limit max_found
        )
    ),
    -- Number of each line's executions that would be next, read without locks, so that those not taken block no
    -- other claim. A single line needs no such look: all that is taken is its own.
    wanted as materialized (
        select line.*, half.is_new, scan.candidates::bigint as n
        from line cross join (values (false), (true)) as half (is_new)
        where (select count(*) from line) = 1
        union all
        select next.queue, next.serve_key, next.tenant_id, next.after_rank, next.after_id, next.is_new, count(*)
        from (
            select line.*, half.is_new
            from line cross join (values (false), (true)) as half (is_new) cross join lateral (
                select longhaul_claim_rank(x.created_at, x.priority) as rank, x.id
                from executions x
                where x.wait_reason = 'worker' and x.queue = line.queue and x.serve_key = line.serve_key and x.lane = 0
                    and x.tenant_id = line.tenant_id and (x.started_at is null) = half.is_new
                    and (longhaul_claim_rank(x.created_at, x.priority), x.id) > (
                        -- A started execution that came back may be older than the one taken last.
                        case when half.is_new then line.after_rank else -9223372036854775808 end,
                        case when half.is_new then line.after_id else '00000000-0000-0000-0000-000000000000'::uuid end
                    )
                order by longhaul_claim_rank(x.created_at, x.priority), x.id
                limit scan.per_tenant
            ) head
            left join unnest(scan.usage) as used on used.tenant_id = line.tenant_id
            where (select count(*) from line) > 1
            order by coalesce(used.tokens, 0)
                + scan.usual * row_number() over (
                    partition by line.tenant_id
                    order by line.queue <> 'interactive', half.is_new, head.rank, head.id
                ),
                line.queue <> 'interactive', half.is_new, head.rank, head.id
            limit scan.candidates
        ) next
        group by next.queue, next.serve_key, next.tenant_id, next.after_rank, next.after_id, next.is_new
    ),
    candidate as materialized (
        select e.* from wanted cross join lateral (
            select x.id, x.tenant_id, x.lane, x.queue <> 'interactive' as is_batch,
                (x.started_at is null) as is_new,
                longhaul_claim_rank(x.created_at, x.priority) as rank, scan.candidates as lane_room
            from executions x
            where x.wait_reason = 'worker' and x.queue = wanted.queue and x.serve_key = wanted.serve_key and x.lane = 0
                and x.tenant_id = wanted.tenant_id and (x.started_at is null) = wanted.is_new
                and (longhaul_claim_rank(x.created_at, x.priority), x.id) > (
                    case when wanted.is_new then wanted.after_rank else -9223372036854775808 end,
                    case when wanted.is_new then wanted.after_id else '00000000-0000-0000-0000-000000000000'::uuid end
                )
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
                with recursive found (tenant_id) as (
                    (
                        select x.tenant_id from executions x
                        where x.wait_reason = 'worker' and x.queue = suspect.queue
                            and x.serve_key = suspect.serve_key and x.lane = suspect.lane
                        order by x.tenant_id, (x.started_at is null), longhaul_claim_rank(x.created_at, x.priority),
                            x.id
                        limit 1
                    )
                    union all
                    select next.tenant_id from found cross join lateral (
                        select x.tenant_id from executions x
                        where x.wait_reason = 'worker' and x.queue = suspect.queue
                            and x.serve_key = suspect.serve_key and x.lane = suspect.lane
                            and x.tenant_id > found.tenant_id
                        order by x.tenant_id, (x.started_at is null), longhaul_claim_rank(x.created_at, x.priority),
                            x.id
                        limit 1
                    ) next
                )
                select head.id
                from (select found.tenant_id from found limit max_found) found cross join lateral (
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
