-- One entry per execution that waits for a call to a full endpoint to end. Every worker looks once a second for the endpoints
-- that have such a line, in steps from one endpoint to the next.
create index provider_waits_full on provider_waits (provider, model, key)
    where reason = 'rate_limit' and pass_at is null and not is_released;
