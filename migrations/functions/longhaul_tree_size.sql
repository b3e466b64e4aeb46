-- Number of executions in a tree, the root included; counts no further than `at_most` others. Volatile, so that
-- it has a snapshot of its own: called under the tree's lock, it sees what the previous holder of that lock
-- committed (core-rules 12).
create or replace function longhaul_tree_size(root uuid, at_most int) returns bigint
    language sql volatile
    as $$
        select count(*) + 1 from (select from executions t where t.root_id = root limit at_most) counted
    $$;
