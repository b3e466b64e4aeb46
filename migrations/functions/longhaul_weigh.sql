-- Chooses and locks the next executions of these tenants, gaps and lanes of suspects in fair order: at most
-- `candidates`. Executions that another claim has locked are skipped, not waited for. The parameters are those of
-- `longhaul_claim`.
create or replace function longhaul_weigh(
    candidates int, per_tenant bigint,
    known_queues text[], known_serves text[], known_tenants uuid[], known_ranks bigint[], known_ids uuid[],
    gap_queues text[], gap_serves text[], gap_aboves uuid[], gap_belows uuid[], max_found bigint,
    suspect_queues text[], suspect_serves text[], suspect_lanes smallint[], suspect_rooms int[],
    used_tenants uuid[], used_tokens float8[], usual float8,
    out places tid[], out ids uuid[], out news boolean[]
)
    language plpgsql volatile
    as $$
#variable_conflict use_variable
begin
    with line as materialized (
        select known.*
        from unnest(known_queues, known_serves, known_tenants, known_ranks, known_ids)
            as known (queue, serve_key, tenant_id, after_rank, after_id)
        union all
        (
            select gap.queue, gap.serve_key, found.tenant_id, -9223372036854775808,
                '00000000-0000-0000-0000-000000000000'::uuid
            from unnest(gap_queues, gap_serves, gap_aboves, gap_belows) as gap (queue, serve_key, above, below)
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
        select line.*, half.is_new, candidates::bigint as n
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
                limit per_tenant
            ) head
            left join unnest(used_tenants, used_tokens) as used (tenant_id, tokens) on used.tenant_id = line.tenant_id
            where (select count(*) from line) > 1
            order by coalesce(used.tokens, 0)
                + usual * row_number() over (partition by line.tenant_id order by half.is_new, head.rank, head.id),
                half.is_new, head.rank, head.id
            limit candidates
        ) next
        group by next.queue, next.serve_key, next.tenant_id, next.after_rank, next.after_id, next.is_new
    ),
    candidate as materialized (
        select e.* from wanted cross join lateral (
            select x.ctid as place, x.id, x.tenant_id, x.lane, (x.started_at is null) as is_new,
                longhaul_claim_rank(x.created_at, x.priority) as rank, candidates as lane_room
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
        select s.* from unnest(suspect_queues, suspect_serves, suspect_lanes, suspect_rooms)
            as suspect (queue, serve_key, lane, room)
        cross join lateral (
            select x.ctid, x.id, x.tenant_id, x.lane, (x.started_at is null),
                longhaul_claim_rank(x.created_at, x.priority), suspect.room
            from executions x
            where x.wait_reason = 'worker' and x.queue = suspect.queue and x.serve_key = suspect.serve_key
                and x.lane = suspect.lane
            order by x.tenant_id, (x.started_at is null), longhaul_claim_rank(x.created_at, x.priority), x.id
            limit suspect.room
            for update skip locked
        ) s
    ),
    picked as (
        select placed.* from (
            -- A lane has one room for all queues and serve keys together.
            select shared.*,
                row_number() over (partition by shared.lane order by share, shared.is_new, rank, shared.id)
                as place_in_lane
            from (
                select c.*, coalesce(used.tokens, 0)
                    + usual * row_number() over (partition by c.tenant_id order by c.is_new, c.rank, c.id) as share
                from candidate c
                left join unnest(used_tenants, used_tokens) as used (tenant_id, tokens) on used.tenant_id = c.tenant_id
            ) shared
        ) placed
        where placed.place_in_lane <= placed.lane_room
        order by share, placed.is_new, rank, placed.id
        limit candidates
    )
    select array_agg(p.place), array_agg(p.id), array_agg(p.is_new) into places, ids, news
    from (select picked.place, picked.id, picked.is_new from picked order by share, picked.is_new, rank, picked.id) p;
end
$$;
