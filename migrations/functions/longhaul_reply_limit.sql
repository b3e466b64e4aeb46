-- Longest reply in tokens that the rest of a budget allows a call, at most `reply_tokens`. Null if that is less
-- than `least_reply_tokens`: the call does not fit. `longhaul_call_cost` of the result never exceeds the rest.
create or replace function longhaul_reply_limit(
    b budgets, prompt_cost bigint, prompt_tokens bigint, reply_price bigint, reply_tokens bigint,
    least_reply_tokens bigint
) returns bigint
    language sql immutable parallel safe
    as $$
    select case when fits.tokens >= least_reply_tokens
        and (b.max_calls is null or b.spent_calls + b.reserved_calls < b.max_calls)
        then fits.tokens
    end
    from (
        -- `least` ignores the null of a cap that is not set.
        select least(
            reply_tokens::numeric,
            b.max_tokens::numeric - b.spent_tokens - b.reserved_tokens - prompt_tokens,
            case
                when coalesce(reply_price, 0) > 0
                    then floor((b.max_cost::numeric - b.spent_cost - b.reserved_cost - prompt_cost)
                        * 1000000 / reply_price)
                when b.max_cost::numeric - b.spent_cost - b.reserved_cost < prompt_cost then -1
            end
        )::bigint as tokens
    ) as fits
$$;
