-- How long this worker's lease is, so that whoever finds it expired can tell whether it may still be renewed: one that ran out across a
-- restart of the server proves nothing (docs/adr/0003-leases-and-outages.md). Null: registered by the release before.
alter table workers add column lease interval;
