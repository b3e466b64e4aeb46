-- Has the sweep look at the bodies that the deleted rows named. A body that is to be looked at later already, because
-- it was just stored, is left alone. Locks bodies in key order.
create or replace function longhaul_check_bodies() returns trigger
    language plpgsql
    as $$
begin
    with named as (
        select b.tenant_id, b.hash
        from file_bodies b
        where (b.tenant_id, b.hash) in (select gone.tenant_id, gone.hash from gone) and b.check_at is null
        order by b.tenant_id, b.hash
        for no key update
    )
    update file_bodies b set check_at = longhaul_now()
    from named where b.tenant_id = named.tenant_id and b.hash = named.hash;
    return null;
end
$$;

create or replace trigger files_body after delete on files
    referencing old table as gone for each statement execute function longhaul_check_bodies();
create or replace trigger execution_files_body after delete on execution_files
    referencing old table as gone for each statement execute function longhaul_check_bodies();
create or replace trigger session_files_body after delete on session_files
    referencing old table as gone for each statement execute function longhaul_check_bodies();
create or replace trigger workspace_entries_body after delete on workspace_entries
    referencing old table as gone for each statement execute function longhaul_check_bodies();
