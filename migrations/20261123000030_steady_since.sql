-- Since when a worker's renewals have come without a gap: after a server that answered nobody for a while, nobody is declared dead before somebody
-- has renewed for a whole lease again (docs/adr/0003-leases-and-outages.md). Null: registered by the release before.
alter table workers add column steady_since timestamptz;
