-- Channels (docs/adr/0057-chat-channels.md): endpoints that are told in messages, in which people decide on approvals.

alter table webhook_endpoints
    -- standard: a signed request. slack: a message to an incoming webhook. email: a message to each recipient.
    add column kind text not null default 'standard' check (kind in ('standard', 'slack', 'email')),
    -- URL of the incoming webhook, encrypted (`url` has its origin alone), and signing secret of the Slack app.
    add column sealed_url text,
    add column sealed_secret text,
    -- Key with whose rights the people in a channel decide: the one that wrote the endpoint last.
    add column key_id uuid,
    add constraint webhook_endpoints_of_slack
        check ((kind = 'slack') = (sealed_url is not null) and (kind = 'slack') = (sealed_secret is not null)),
    add constraint webhook_endpoints_of_channels check ((kind <> 'standard') = (key_id is not null));
