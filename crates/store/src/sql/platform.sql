-- The whole platform, from one snapshot.
select s.runtime_profile,
    (select coalesce(jsonb_agg(to_jsonb(p)
        || jsonb_build_object('is_active', p.slug is not distinct from s.active_profile)
        order by p.slug), '[]') from platform_profiles p) as "profiles!: Json<Vec<ProfileRow>>",
    (select coalesce(jsonb_agg(to_jsonb(b) order by b.profile, b.capability), '[]')
        from platform_bindings b) as "bindings!: Json<Vec<BindingRow>>",
    (select coalesce(jsonb_agg(to_jsonb(p) order by p.slug), '[]')
        from platform_providers p) as "providers!: Json<Vec<ProviderRow>>",
    (select coalesce(jsonb_agg(to_jsonb(m) order by m.id), '[]')
        from managed_models m) as "models!: Json<Vec<ModelRow>>"
from platform_state s
