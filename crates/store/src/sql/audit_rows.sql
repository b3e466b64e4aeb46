-- Rows of the audit log, newest first: of actors of the tenants $1, by the actor $2, with the route $3 and the target
-- $4, since $5, until $6, before the row $7.
select a.id, a.at, t.org_id, nullif(t.group_id, '') as group_id, a.actor_kind, a.actor_id, a.actor_name, a.method,
    a.route, a.target, a.status, a.request_id, a.own_request_id
from (select * from tenants where $1::uuid[] is null or id = any ($1)) t
cross join lateral (
    select * from audit_log a
    where a.tenant_id = t.id
        and ($2::uuid is null or a.actor_id = $2)
        and ($3::text is null or a.route = $3)
        and ($4::text is null or a.target = $4)
        -- Ids are in the order of time.
        and ($5::timestamptz is null or a.id >= longhaul_uuid_floor($5) and a.at >= $5)
        and ($6::timestamptz is null or a.id < longhaul_uuid_floor($6 + interval '1 millisecond') and a.at < $6)
        and ($7::uuid is null or a.id < $7)
    order by a.id desc
    limit $8
) a
order by a.id desc
limit $8
