-- Most that a call can cost: its prompt, and a reply of `reply_tokens` at `reply_price` per million tokens. Null
-- where the price is not known. Capped far above any budget, so that sums of it stay within a bigint.
create or replace function longhaul_call_cost(prompt_cost bigint, reply_tokens bigint, reply_price bigint)
    returns bigint
    language sql immutable parallel safe
    as $$
    select case when prompt_cost is not null then
        least(prompt_cost + ceil(reply_tokens::numeric * coalesce(reply_price, 0) / 1000000),
            1000000000000000000)::bigint
    end
$$;
