-- Value of a limit's expression for an execution; null if its metadata has no such path.
create or replace function longhaul_limit_value(expression text, tenant uuid, definition text, agent text,
    metadata jsonb) returns text
    language sql immutable parallel safe
    as $$
        select case expression
            when 'tenant' then tenant::text
            when 'definition' then definition
            when 'agent' then agent
            else metadata #>> string_to_array(substr(expression, 10), '.')
        end
    $$;
