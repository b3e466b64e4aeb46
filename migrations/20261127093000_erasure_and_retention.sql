-- Erasure of the copies in transcripts (docs/adr/0068-erasure-of-copies.md), and the indexes of retention.

-- Number of erasures in the session: a fold that read the texts before one does not write them after it.
alter table sessions add column erasures int not null default 0;
-- True for a message whose text was erased; a tombstone stands in its place, so that the numbers stay.
alter table session_messages add column is_erased boolean not null default false;
-- True if a message before it was erased while it was answered: a summary that it made may hold that text, and is
-- erased when it has ended.
alter table session_turns add column holds_erased boolean not null default false;
create index session_turns_hold_erased on session_turns (execution_id) where holds_erased;

-- The release before left the texts of erased executions in transcripts.
update session_messages m
set body = '\x00'::bytea || convert_to('{"role":"user","parts":["[This message was erased]"]}', 'UTF8'),
    is_erased = true
from session_turns t join execution_payloads p on p.execution_id = t.execution_id
where m.session_id = t.session_id and m.execution_id = t.execution_id and p.erased_at is not null;

-- Retention: open executions that spend the budget of a session, projects by their end, months by their age.
create index executions_budget on executions (budget_id) where budget_id is not null;
create index projects_ended on projects (finished_at, id) where finished_at is not null;
create index schedule_months_age on schedule_months (month);
