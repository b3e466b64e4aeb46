-- Puts a whole document of the platform in one statement: a reader sees all of it or nothing. An entry replaces
-- the one of the same name; entries that the document does not name stay. Bindings and shares belong to their
-- profile and agent and are replaced with them. Grantees and scopes are `public` or kind:name, in the form in
-- which they are compared.
with doc as materialized (
    select $1::jsonb as doc, longhaul_now() as now
),
models as (
    insert into managed_models (id, display_name, provider_model_id, metadata, changed_at)
    select m.id, coalesce(m.display_name, m.id), m.provider_model_id, coalesce(m.metadata, '{}'), doc.now
    from doc, jsonb_to_recordset(doc->'managed_models') as m (id text, display_name text, provider_model_id text,
        metadata jsonb)
    on conflict (id) do update set display_name = excluded.display_name, provider_model_id = excluded.provider_model_id,
        metadata = excluded.metadata, changed_at = excluded.changed_at
),
providers as (
    insert into platform_providers (slug, provider_key, provider_origin, display_name, description, adapter_kind,
        endpoint_url,
        healthcheck_url, enabled, config, changed_at)
    select p.slug, p.provider_key, p.provider_origin, coalesce(p.display_name, p.slug), p.description, p.adapter_kind,
        p.endpoint_url, p.healthcheck_url, p.enabled, p.config, doc.now
    from doc, jsonb_to_recordset(doc->'providers') as p (slug text, provider_key text, provider_origin text,
        display_name text,
        description text, adapter_kind text, endpoint_url text, healthcheck_url text, enabled boolean, config jsonb)
    on conflict (slug) do update set provider_key = excluded.provider_key, provider_origin = excluded.provider_origin,
        display_name = excluded.display_name, description = excluded.description, adapter_kind = excluded.adapter_kind,
        endpoint_url = excluded.endpoint_url, healthcheck_url = excluded.healthcheck_url, enabled = excluded.enabled,
        config = excluded.config, changed_at = excluded.changed_at,
        health = 'unknown', health_detail = null, health_since = null, asked_at = null
),
given as materialized (
    select p.slug, p.display_name, p.bindings, doc.now
    from doc, jsonb_to_recordset(doc->'profiles') as p (slug text, display_name text, bindings jsonb)
),
profiles as (
    insert into platform_profiles (slug, display_name, changed_at)
    select slug, coalesce(display_name, slug), now from given
    on conflict (slug) do update set display_name = excluded.display_name, changed_at = excluded.changed_at
),
unbound as (
    delete from platform_bindings b using given
    where b.profile = given.slug and not given.bindings ? b.capability
),
bound as (
    insert into platform_bindings (profile, capability, provider, resources, default_resource_id, resource_policy,
        binding_config, changed_at)
    select given.slug, b.key, b.value->>'provider', b.value->'resources', b.value->>'default_resource_id',
        b.value->'resource_policy', b.value->'binding_config', given.now
    from given, jsonb_each(given.bindings) as b
    on conflict (profile, capability) do update set provider = excluded.provider, resources = excluded.resources,
        default_resource_id = excluded.default_resource_id, resource_policy = excluded.resource_policy,
        binding_config = excluded.binding_config, changed_at = excluded.changed_at
),
tools as (
    insert into catalogue_tools (tool_ref, tool_name, description, transport, connection_profile_ref, input_schema,
        safety_policy,
        offline_compatible, effect, changed_at)
    select t.tool_ref, t.tool_name, t.description, t.transport, t.connection_profile_ref, t.input_schema,
        t.safety_policy,
        t.offline_compatible, t.effect, doc.now
    from doc, jsonb_to_recordset(doc->'tools') as t (tool_ref text, tool_name text, description text, transport text,
        connection_profile_ref text, input_schema jsonb, safety_policy jsonb, offline_compatible boolean, effect text)
    on conflict (tool_ref) do update set tool_name = excluded.tool_name, description = excluded.description,
        transport = excluded.transport, connection_profile_ref = excluded.connection_profile_ref,
        input_schema = excluded.input_schema, safety_policy = excluded.safety_policy,
        offline_compatible = excluded.offline_compatible, effect = excluded.effect, changed_at = excluded.changed_at
),
accesses as materialized (
    select a.agent, a.owner_user_id, a.shares, doc.now
    from doc, jsonb_to_recordset(doc->'access') as a (agent text, owner_user_id bigint, shares jsonb)
),
owners as (
    insert into agent_access (agent_key, owner_user_id, changed_at) select agent, owner_user_id, now from accesses
    on conflict (agent_key) do update set owner_user_id = excluded.owner_user_id, changed_at = excluded.changed_at
),
wanted as materialized (
    select distinct a.agent, split_part(s.grantee, ':', 1) as grantee_type,
        case when s.grantee = 'public' then '' else substr(s.grantee, strpos(s.grantee, ':') + 1) end as grantee_id,
        s.permission
    from accesses a, jsonb_to_recordset(a.shares) as s (grantee text, permission text)
),
unshared as (
    delete from agent_shares s using accesses a
    where s.agent_key = a.agent and not exists (
        select from wanted w where w.agent = s.agent_key and w.grantee_type = s.grantee_type
            and w.grantee_id = s.grantee_id
            and w.permission = s.permission)
),
shared as (
    insert into agent_shares (agent_key, grantee_type, grantee_id, permission)
    select agent, grantee_type, grantee_id, permission from wanted
    on conflict do nothing
),
rules as (
    insert into policy_rules (id, effect, scope_type, scope_id, resource_id, action, changed_at)
    select r.id, r.effect, split_part(r.scope, ':', 1),
        substr(r.scope, strpos(r.scope, ':') + 1), r.resource, r.action, doc.now
    from doc, jsonb_to_recordset(doc->'policy_rules') as r (id text, effect text, scope text, resource text,
        action text)
    on conflict (id) do update set effect = excluded.effect, scope_type = excluded.scope_type,
        scope_id = excluded.scope_id,
        resource_id = excluded.resource_id, action = excluded.action, changed_at = excluded.changed_at
)
update platform_state s
set active_profile = coalesce(doc->>'active_profile', s.active_profile),
    runtime_profile = coalesce(doc->>'runtime_profile', s.runtime_profile)
from doc
