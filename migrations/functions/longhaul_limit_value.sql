-- The value that a limit's expression has for an execution; null when its metadata has no such path.
create or replace function longhaul_limit_value(expression text, tenant uuid, definition text, agent text, metadata jsonb) returns text
    language sql immutable parallel safe
    as $$
        select case expression
            when 'tenant' then tenant::text
            when 'definition' then definition
            when 'agent' then agent
            else metadata #>> string_to_array(substr(expression, 10), '.')
        end
    $$;
