//! Access to agents, and the tools of the catalogue.
//!
//! Entries and rules name agents by key, and several tenants may have an agent of the same key. A key means the
//! shared agent and those of the installation's own organisation; agents of other tenants are matched by `*`
//! only.

use longhaul_contract::catalogue::{AccessSpec, RuleSpec, ShareSpec};
use longhaul_domain::{AgentVersionId, ExecutionId};
use longhaul_sdk::tool::ToolEffect;
use serde_json::Value;

use crate::{Store, StoreError};

/// Subject of an access check.
#[derive(Debug, Clone, Copy)]
pub struct Asker<'a> {
    /// User, where the caller named one.
    pub user_id: Option<i64>,
    /// Role in lower case.
    pub role: &'a str,
    pub org_id: Option<&'a str>,
    pub group_id: Option<&'a str>,
}

/// Result of an access check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The agent may be executed.
    Granted,
    /// A rule denies it.
    Denied,
    /// No owner, share or rule allows it.
    Missing,
}

/// A tool of the catalogue.
#[derive(Debug, Clone, PartialEq)]
pub struct CatalogueTool {
    /// Name in `tool_refs`.
    pub tool_ref: String,
    /// Name by which models call it.
    pub tool_name: String,
    /// Description for models.
    pub description: String,
    pub transport: String,
    /// Connection profile that it needs.
    pub connection_profile_ref: String,
    /// JSON Schema of the arguments.
    pub input_schema: Value,
    /// Policy that is sent to the tool's service.
    pub safety_policy: Value,
    pub offline_compatible: bool,
    /// Effect class, which decides about repeats.
    pub effect: ToolEffect,
}

impl Store {
    /// Checks if `asker` may execute the agent of `version`. A deny rule wins over everything. Access is granted
    /// by the role `superadmin`, ownership, a share that allows execution, an allow rule, or the lack of an entry
    /// for the agent. `own_org` is the installation's own organisation.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn may_execute(
        &self,
        version: AgentVersionId,
        own_org: &str,
        asker: Asker<'_>,
    ) -> Result<Access, StoreError> {
        let row = sqlx::query!(
            r#"
            with agent as (
                -- Without a name where names do not mean it.
                select case when v.tenant_id is null or t.org_id = $6 then v.key end as named
                from agent_versions v left join tenants t on t.id = v.tenant_id
                where v.id = $1
            ),
            rule as (
                select effect from policy_rules
                where (resource_id = '*' or resource_id = (select named from agent)) and action in ('execute', '*')
                    and (scope_type, scope_id) in (('user', $2::bigint::text), ('role', $3::text), ('org', $4::text),
                        ('group', $5::text))
            )
            select
                exists (select from rule where effect = 'deny') as "is_denied!",
                exists (select from rule where effect = 'allow') as "is_allowed!",
                not exists (select from agent_access join agent on agent_key = named) as "is_open!",
                exists (select from agent_access join agent on agent_key = named where owner_user_id = $2)
                    as "is_owner!",
                exists (
                    select from agent_shares join agent on agent_key = named
                    where permission in ('execute', 'admin') and (grantee_type = 'public'
                        or (grantee_type, grantee_id) in (('user', $2::bigint::text), ('role', $3), ('org', $4),
                            ('group', $5)))
                ) as "is_shared!"
            "#,
            version.0,
            asker.user_id,
            asker.role,
            asker.org_id,
            asker.group_id,
            own_org,
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(if row.is_denied {
            Access::Denied
        } else if asker.role == "superadmin" || row.is_owner || row.is_shared || row.is_allowed || row.is_open {
            Access::Granted
        } else {
            Access::Missing
        })
    }

    /// Returns true if `parent` may start the agent of `version`, checked for the organisation and group it runs
    /// for and the role of its submitter. A deny rule always holds. Agents that all tenants share, which
    /// operators write, may also start what nothing allows.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn may_spawn(
        &self,
        parent: ExecutionId,
        version: AgentVersionId,
        own_org: &str,
    ) -> Result<bool, StoreError> {
        let asker = sqlx::query!(
            r#"
            select t.org_id, nullif(t.group_id, '') as group_id, v.tenant_id is null as "is_shared!",
                'admin' = any (k.scopes) as is_admin
            from executions e
                join tenants t on t.id = e.tenant_id
                join agent_versions v on v.id = e.agent_version_id
                left join api_keys k on k.id = e.submitted_by
            where e.id = $1
            "#,
            parent.0,
        )
        .fetch_one(&self.pool)
        .await?;
        let role = if asker.is_admin.unwrap_or(false) { "superadmin" } else { "user" };
        let org_id = Some(asker.org_id.as_str());
        let asked = Asker { user_id: None, role, org_id, group_id: asker.group_id.as_deref() };
        Ok(match self.may_execute(version, own_org, asked).await? {
            Access::Granted => true,
            Access::Denied => false,
            Access::Missing => asker.is_shared,
        })
    }

    /// Tools of the catalogue among `refs`, ordered by ref; without `refs` all of them, at most 1,000.
    ///
    /// # Errors
    /// Postgres is unavailable, or a row cannot be read.
    pub async fn catalogue_tools(&self, refs: Option<&[String]>) -> Result<Vec<CatalogueTool>, StoreError> {
        if refs.is_some_and(<[String]>::is_empty) {
            return Ok(Vec::new());
        }
        let rows = sqlx::query!(
            r#"
            select tool_ref, tool_name, description, transport, connection_profile_ref, input_schema, safety_policy,
                offline_compatible, effect
            from catalogue_tools
            where $1::text[] is null or tool_ref = any($1)
            order by tool_ref
            limit 1000
            "#,
            refs,
        )
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter()
            .map(|row| {
                Ok(CatalogueTool {
                    tool_ref: row.tool_ref,
                    tool_name: row.tool_name,
                    description: row.description,
                    transport: row.transport,
                    connection_profile_ref: row.connection_profile_ref,
                    input_schema: row.input_schema,
                    safety_policy: row.safety_policy,
                    offline_compatible: row.offline_compatible,
                    effect: effect_of(&row.effect)?,
                })
            })
            .collect()
    }

    /// Owners and shares of agents, and the policy rules, in the form of a platform document; at most 1,000 of
    /// each.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn access_statements(&self) -> Result<(Vec<AccessSpec>, Vec<RuleSpec>), StoreError> {
        let shares = sqlx::query!(
            r#"
            select a.agent_key, a.owner_user_id, s.permission as "permission?",
                case when s.grantee_type = 'public' then 'public' else s.grantee_type || ':' || s.grantee_id end
                    as grantee
            from (select * from agent_access order by agent_key limit 1000) a left join agent_shares s using (agent_key)
            order by a.agent_key, s.grantee_type, s.grantee_id, s.permission
            "#
        )
        .fetch_all(&self.pool)
        .await?;
        let mut access: Vec<AccessSpec> = Vec::new();
        for row in shares {
            if access.last().is_none_or(|last| last.agent != row.agent_key) {
                access.push(AccessSpec { agent: row.agent_key, owner_user_id: row.owner_user_id, shares: Vec::new() });
            }
            if let (Some(last), Some(grantee), Some(permission)) = (access.last_mut(), row.grantee, row.permission) {
                last.shares.push(ShareSpec { grantee, permission });
            }
        }
        let rules = sqlx::query_as!(
            RuleSpec,
            r#"
            select id, effect, scope_type || ':' || scope_id as "scope!", resource_id as resource, action
            from policy_rules order by id limit 1000
            "#
        )
        .fetch_all(&self.pool)
        .await?;
        Ok((access, rules))
    }
}

fn effect_of(text: &str) -> Result<ToolEffect, StoreError> {
    match text {
        "read_only" => Ok(ToolEffect::ReadOnly),
        "idempotent" => Ok(ToolEffect::Idempotent),
        "side_effect" => Ok(ToolEffect::SideEffect),
        other => Err(StoreError::Corrupt(format!("the effect `{other}` of a tool is unknown"))),
    }
}
