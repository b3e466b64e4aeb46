-- What an execution retrieves before its first turn is a step of its own. The new check allows more than the old one, so rows that are
-- there, and rows that the release before writes, pass it; `not valid` spares the scan that could only find so.
alter table steps drop constraint steps_kind_check;
alter table steps add constraint steps_kind_check
    check (kind in ('retrieval', 'prompt', 'turn', 'call', 'verdict', 'correction', 'compression')) not valid;
