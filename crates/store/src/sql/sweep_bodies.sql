-- Deletes those of these locked bodies that nothing names, returns their bytes to the quotas, and leaves their objects
-- to the sweep. The others are not looked at again until something stops naming them.
with due as (
    select * from unnest($1::uuid[], $2::bytea[]) as due (tenant_id, hash)
),
gone as (
    delete from file_bodies b using due
    where b.tenant_id = due.tenant_id and b.hash = due.hash
        and not exists (select from files f where f.tenant_id = b.tenant_id and f.hash = b.hash)
        and not exists (select from execution_files f where f.tenant_id = b.tenant_id and f.hash = b.hash)
        and not exists (select from session_files f where f.tenant_id = b.tenant_id and f.hash = b.hash)
        and not exists (select from workspace_entries f where f.tenant_id = b.tenant_id and f.hash = b.hash)
    returning b.tenant_id, b.hash, b.bytes, b.object_key
),
named as (
    update file_bodies b set check_at = null from due
    where b.tenant_id = due.tenant_id and b.hash = due.hash
        and (b.tenant_id, b.hash) not in (select gone.tenant_id, gone.hash from gone)
),
freed as (
    select tenant_id, sum(bytes)::bigint as bytes from gone group by tenant_id order by tenant_id
),
usage as (
    update file_usage u set bytes = greatest(u.bytes - freed.bytes, 0)
    from freed where u.tenant_id = freed.tenant_id
),
leftovers as (
    insert into file_leftovers (object_key, due_at)
    select object_key, longhaul_now() from gone where object_key is not null
)
select count(*) as "gone!" from gone
