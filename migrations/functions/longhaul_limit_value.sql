-- Value of a limit's expression for an execution; null if its metadata has no such path.
drop function if exists longhaul_limit_value(text, uuid, text, text, jsonb);
create or replace function longhaul_limit_value(expression text, tenant uuid, definition text, agent text, queue text,
    metadata jsonb) returns text
    language sql immutable parallel safe
    as $$
        select case expression
            when 'tenant' then tenant::text
            when 'definition' then definition
            when 'agent' then agent
            when 'queue' then queue
            else metadata #>> string_to_array(substr(expression, 10), '.')
        end
    $$;
