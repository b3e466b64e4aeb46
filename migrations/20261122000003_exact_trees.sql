-- How many executions a tree holds, the root included, counted no further than `at_most`. Volatile, so that it has a snapshot of its
-- own: called under the tree's lock it sees what was committed by whoever held that lock before (core-rules 12).
create function longhaul_tree_size(root uuid, at_most int) returns bigint
    language sql volatile
    as $$
        select count(*) + 1 from (select from executions t where t.root_id = root limit at_most) counted
    $$;
