-- UUIDv7 from the database's clock.
create or replace function longhaul_uuid() returns uuid
    language sql volatile parallel safe
    -- A random UUID with the milliseconds in its first six bytes; setting two bits turns version 4 into version
    -- 7.
    as $$
        select encode(set_bit(set_bit(overlay(
            uuid_send(gen_random_uuid())
            placing substring(int8send((extract(epoch from longhaul_now()) * 1000)::bigint) from 3)
            from 1 for 6
        ), 52, 1), 53, 1), 'hex')::uuid
    $$;
