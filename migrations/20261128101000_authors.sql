-- Keys that wrote what an execution does, besides the one that submitted it: none of them may approve its calls.
alter table execution_payloads add column if not exists authors uuid[];
-- Keys that put the plan or retried a task of a project, besides its creator.
alter table projects add column if not exists authors uuid[] not null default '{}';
