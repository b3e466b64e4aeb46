//! Versions of skills. A version never changes; removing one keeps it from agents that are put later, not from
//! versions of agents that pin it.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use longhaul_domain::{SkillVersionId, TenantId};
use longhaul_sdk::spec::{SKILL_FILE, SkillSpec};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::put::{PUT_TRIES, Put};
use crate::{Store, StoreError};

/// One stored version of a skill, without its texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillVersion {
    pub id: SkillVersionId,
    /// Owner; `None` when shared by all tenants.
    pub tenant_id: Option<TenantId>,
    pub name: String,
    /// Number, counted from 1 per name and owner.
    pub version: i32,
    pub description: String,
    pub created_at: DateTime<Utc>,
    pub removed_at: Option<DateTime<Utc>>,
}

/// A skill that a version of an agent pins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedSkill {
    pub id: SkillVersionId,
    pub name: String,
    pub description: String,
}

impl Store {
    /// Puts `skill` as the newest version of its name, unless the newest version has the same content. Without a
    /// `tenant` the version is shared by all tenants.
    ///
    /// # Errors
    /// Postgres refused a text or is unavailable.
    pub async fn put_skill(&self, tenant: Option<TenantId>, skill: &SkillSpec) -> Result<Put, StoreError> {
        let (tenant, hash) = (tenant.map(|tenant| tenant.0), content_hash(skill));
        let body = (SKILL_FILE, skill.body.as_str());
        let files = skill.files.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        let (paths, texts): (Vec<_>, Vec<_>) =
            std::iter::once(body).chain(files).map(|(path, text)| (path.to_owned(), text.to_owned())).unzip();
        for _ in 0..PUT_TRIES {
            let latest = sqlx::query!(
                "select id, version, content_hash, removed_at
                 from skill_versions
                 where name = $2 and tenant_id is not distinct from $1
                 order by version desc
                 limit 1",
                tenant,
                skill.name,
            )
            .fetch_optional(&self.pool)
            .await?;
            if let Some(latest) = &latest
                && latest.content_hash == hash
                && latest.removed_at.is_none()
            {
                return Ok(Put { id: latest.id, version: latest.version, created: false });
            }
            let (id, version) = (Uuid::new_v4(), latest.map_or(1, |latest| latest.version + 1));
            let inserted = sqlx::query!(
                "with version as (
                     insert into skill_versions (id, tenant_id, name, version, content_hash, description, created_at)
                     values ($1, $2, $3, $4, $5, $6, longhaul_now())
                     on conflict do nothing
                     returning id
                 )
                 insert into skill_files (skill_version_id, path, text)
                 select version.id, file.path, file.text
                 from version, unnest($7::text[], $8::text[]) file (path, text)",
                id,
                tenant,
                skill.name,
                version,
                hash,
                skill.description,
                &paths,
                &texts,
            );
            if inserted.execute(&self.pool).await?.rows_affected() > 0 {
                return Ok(Put { id, version, created: true });
            }
        }
        Err(StoreError::Conflict(format!("`{}` is being put by too many at once", skill.name)))
    }

    /// The version that `tenant` means by a name: the newest that is not removed, or the numbered one, removed or not.
    /// A tenant's own skill hides the shared one of the same name.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn resolve_skill(
        &self,
        tenant: Option<TenantId>,
        name: &str,
        version: Option<i32>,
    ) -> Result<Option<SkillVersion>, StoreError> {
        let row = sqlx::query_as!(
            SkillVersion,
            r#"select id, tenant_id as "tenant_id: _", name, version, description, created_at, removed_at
             from skill_versions
             where name = $2 and (tenant_id = $1 or tenant_id is null)
                 and (($3::int is null and removed_at is null) or version = $3)
                 and (tenant_id is not null or not exists (
                     select from skill_versions own
                     where own.name = $2 and own.tenant_id = $1 and own.removed_at is null
                 ))
             order by removed_at is not null, tenant_id nulls last, version desc
             limit 1"#,
            tenant.map(|tenant| tenant.0),
            name,
            version,
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(row)
    }

    /// Newest version of each skill that `tenant` sees, in the order of names, after `after`.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn list_skills(
        &self,
        tenant: Option<TenantId>,
        after: &str,
        limit: i64,
    ) -> Result<Vec<SkillVersion>, StoreError> {
        let rows = sqlx::query_as!(
            SkillVersion,
            r#"
            select distinct on (name) id as "id!", tenant_id as "tenant_id: _", name as "name!", version as "version!",
                description as "description!", created_at as "created_at!", removed_at
            from (
                select * from skill_versions where tenant_id = $1 and removed_at is null and name > $2
                union all
                select * from skill_versions where tenant_id is null and removed_at is null and name > $2
            ) seen
            order by name, tenant_id nulls last, version desc
            limit $3
            "#,
            tenant.map(|tenant| tenant.0),
            after,
            limit,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows)
    }

    /// All texts of a version by path.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn skill_files(&self, id: SkillVersionId) -> Result<BTreeMap<String, String>, StoreError> {
        let rows = sqlx::query!("select path, text from skill_files where skill_version_id = $1", id.0)
            .fetch_all(&self.pool)
            .await?;
        Ok(rows.into_iter().map(|row| (row.path, row.text)).collect())
    }

    /// One text of a version, and the paths of all of them in order; `None` if it has no such file.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn skill_file(
        &self,
        id: SkillVersionId,
        path: &str,
    ) -> Result<(Option<String>, Vec<String>), StoreError> {
        let row = sqlx::query!(
            r#"
            select (select text from skill_files where skill_version_id = $1 and path = $2) as text,
                coalesce(array_agg(path order by path), '{}') as "paths!"
            from skill_files
            where skill_version_id = $1
            "#,
            id.0,
            path,
        )
        .fetch_one(&self.pool)
        .await?;
        Ok((row.text, row.paths))
    }

    /// Removes a version of the owner: no agent that is put later has it. Returns false if there is none, or it was
    /// removed before.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn remove_skill_version(
        &self,
        tenant: Option<TenantId>,
        name: &str,
        version: i32,
    ) -> Result<bool, StoreError> {
        let done = sqlx::query!(
            "update skill_versions set removed_at = longhaul_now()
             where tenant_id is not distinct from $1 and name = $2 and version = $3 and removed_at is null",
            tenant.map(|tenant| tenant.0),
            name,
            version,
        )
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// The versions that an agent of `tenant` means by `names`, in their order; `Err` has the first name that means
    /// none.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn resolve_skills<'a>(
        &self,
        tenant: Option<TenantId>,
        names: &'a [String],
    ) -> Result<Result<Vec<Uuid>, &'a str>, StoreError> {
        if names.is_empty() {
            return Ok(Ok(Vec::new()));
        }
        let ids = sqlx::query_scalar!(
            r#"
            select found.id as "id?"
            from unnest($2::text[]) with ordinality wanted (name, place)
            left join lateral (
                select id
                from skill_versions
                where skill_versions.name = wanted.name and (tenant_id = $1 or tenant_id is null)
                    and removed_at is null
                order by tenant_id nulls last, version desc
                limit 1
            ) found on true
            order by wanted.place
            "#,
            tenant.map(|tenant| tenant.0),
            names,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(names.iter().zip(ids).map(|(name, id)| id.ok_or(name.as_str())).collect())
    }

    /// The skills with those ids, in that order.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub(super) async fn pinned_skills(&self, ids: &[Uuid]) -> Result<Vec<PinnedSkill>, StoreError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let skills = sqlx::query_as!(
            PinnedSkill,
            "select id, name, description
             from skill_versions
             where id = any($1)
             order by array_position($1, id)",
            ids,
        );
        Ok(skills.fetch_all(&self.pool).await?)
    }
}

/// SHA-256 over description, paths and texts, each with its length.
fn content_hash(skill: &SkillSpec) -> Vec<u8> {
    let mut hasher = Sha256::new();
    let files = skill.files.iter().flat_map(|(path, text)| [path, text]);
    for part in [&skill.description, &skill.body].into_iter().chain(files) {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    hasher.finalize().to_vec()
}
