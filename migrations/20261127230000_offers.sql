-- Names that a worker has registered, so that `longhaul apply` can say which names no live worker knows: `tool:<name>`,
-- `validator:<name>`, `provider:<name>` and `model:<provider>/<name>`. Empty for workers of earlier releases.
alter table workers add column if not exists offers text[] not null default '{}';
