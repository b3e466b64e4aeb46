-- What is held is found by its worker only by who says that `active_until` is set too, as it is exactly while a worker holds an execution. A statement
-- that looks for one execution by its id and asks whether the worker still holds it shall not find this index: by a plan that was made when the worker held
-- next to nothing it would read all that it holds, for each write.
drop index executions_held;
create index executions_held on executions (worker_id) where worker_id is not null and active_until is not null;
