-- Key that put a version; null in versions of earlier releases, and of those applied without the API.
alter table agent_versions add column if not exists written_by uuid;
alter table definition_versions add column if not exists written_by uuid;
alter table skill_versions add column if not exists written_by uuid;
