-- Skills of agents as immutable versions. A version of an agent pins those that its `skills` meant when it was put.

-- `tenant_id` is null for a skill that all tenants share.
create table skill_versions (
    id uuid primary key,
    tenant_id uuid references tenants,
    name text not null,
    version int not null check (version > 0),
    -- SHA-256 of description, paths and texts. Putting the same content again makes no new version.
    content_hash bytea not null,
    description text not null,
    created_at timestamptz not null,
    removed_at timestamptz
);
create unique index skill_versions_name on skill_versions (name, tenant_id, version) nulls not distinct;

-- Texts of skills; the instructions have the path SKILL.md.
create table skill_files (
    skill_version_id uuid not null references skill_versions,
    path text not null,
    text text not null,
    primary key (skill_version_id, path)
);

-- In the order of the agent's `skills`.
alter table agent_versions add column skill_version_ids uuid[] not null default '{}';
