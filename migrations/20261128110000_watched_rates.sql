-- A learned rate makes an endpoint known, as a learned concurrency does: `known_providers` reads no other endpoints.
create index if not exists provider_breakers_known on provider_breakers (provider, model, key)
    where state <> 'closed' or concurrency is not null or calls_per_second is not null;
drop index if exists provider_breakers_watched;
