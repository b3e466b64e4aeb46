-- Smallest UUIDv7 of an instant, for bounds of partitions and time filters.
create or replace function longhaul_uuid_floor(instant timestamptz) returns uuid
    language sql immutable parallel safe
    as $$ select (lpad(to_hex(floor(extract(epoch from instant) * 1000)::bigint), 12, '0')
        || '70008000000000000000')::uuid $$;
