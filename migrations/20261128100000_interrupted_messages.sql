-- True if the message was under way when the session was interrupted. Another one that was cancelled before it was
-- answered is withdrawn: the model is not told of it.
alter table session_turns add column if not exists is_interrupted boolean not null default false;
