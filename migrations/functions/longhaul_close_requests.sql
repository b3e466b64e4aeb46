-- Closes the open requests of an execution that ends. The caller has locked the execution. Volatile, as
-- `longhaul_unpark` is: the caller's snapshot may be older than a request that it waited for. A request that is
-- locked is passed over, and closed at its expiry: an end waits for no row of a side table. In plpgsql, so that a
-- caller that has nothing to close takes no lock of the table either; the body of an SQL function is analysed, and its
-- tables are locked, whenever the caller is planned.
create or replace function longhaul_close_requests(execution uuid) returns void
    language plpgsql volatile
    as $$
    begin
        update human_requests set state = 'closed', decided_at = longhaul_now()
        where id in (
            select r.id from human_requests r where r.execution_id = execution and r.state = 'waiting'
            for update skip locked
        );
    end
    $$;
