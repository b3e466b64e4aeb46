-- JSON pointers to arguments of a call that nobody is shown: its agent names them. What the tool's schema marks as secret comes on top.
-- The arguments themselves stay exact, since the call runs with them and the hash is over them.
alter table human_requests add column redact jsonb not null default '[]';
