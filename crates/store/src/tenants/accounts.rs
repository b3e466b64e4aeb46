//! Accounts of people, who sign in with an OpenID Connect provider. An account is an API key without a secret, so that
//! submits, decisions and the audit log name one kind of caller.

use chrono::{DateTime, Utc};
use longhaul_domain::{ApiKeyId, Role, TenantId};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{api_keys::Scope, holdings::settle_channels, scope::TenantScope};
use crate::{Store, StoreError};

/// These scopes and those of these roles, sorted, without doubles.
#[must_use]
pub fn scopes_of(roles: &[Role], scopes: &[Scope]) -> Vec<Scope> {
    let is_given = |scope: &Scope| scopes.contains(scope) || roles.iter().any(|role| has(*role, *scope));
    Scope::ALL.iter().copied().filter(is_given).collect()
}

fn has(role: Role, scope: Scope) -> bool {
    match scope {
        Scope::ExecutionsRead | Scope::DefinitionsRead => true,
        Scope::ExecutionsWrite | Scope::DefinitionsWrite | Scope::WorkersRun => {
            matches!(role, Role::Operator | Role::Admin | Role::Superadmin)
        }
        Scope::ApprovalsDecide => matches!(role, Role::Approver | Role::Admin | Role::Superadmin),
        Scope::KeysWrite | Scope::AuditRead => matches!(role, Role::Admin | Role::Superadmin),
        Scope::Admin => role == Role::Superadmin,
    }
}

/// A person who signed in at a provider.
#[derive(Debug, Clone, Copy)]
pub struct SignedIn<'a> {
    pub tenant: TenantId,
    pub issuer: &'a str,
    /// Identifier of the person at the issuer.
    pub subject: &'a str,
    pub name: &'a str,
    pub email: Option<&'a str>,
    pub roles: &'a [Role],
}

/// An account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub id: ApiKeyId,
    pub org_id: String,
    pub group_id: Option<String>,
    pub name: String,
    pub email: Option<String>,
    pub issuer: String,
    pub subject: String,
    /// Names of roles, as of the newest sign-in.
    pub roles: Vec<String>,
    pub created_at: DateTime<Utc>,
    pub signed_in_at: DateTime<Utc>,
    /// Since then the person cannot sign in.
    pub disabled_at: Option<DateTime<Utc>>,
}

/// A query for accounts, which ends with the given condition.
macro_rules! select_accounts {
    ($condition:literal, $($bind:expr),+ $(,)?) => {
        sqlx::query_as!(
            Account,
            r#"
            select k.id, t.org_id, nullif(t.group_id, '') as group_id, k.name, a.email, a.issuer, a.subject, a.roles,
                k.created_at, a.signed_in_at, k.revoked_at as disabled_at
            from accounts a join api_keys k on k.id = a.key_id join tenants t on t.id = k.tenant_id
            "# + $condition,
            $($bind),+
        )
    };
}

impl Store {
    /// Notes that a person signed in; at the first time, creates the account. Tenant, name and roles become those of
    /// this sign-in, also for sessions that began before. Returns the hash by which a session names the account, or
    /// `None` if it is disabled.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn sign_in(&self, person: &SignedIn<'_>) -> Result<Option<Vec<u8>>, StoreError> {
        let hash = hash_of(person.issuer, person.subject);
        let scopes: Vec<String> = scopes_of(person.roles, &[]).iter().map(ToString::to_string).collect();
        let roles: Vec<String> = person.roles.iter().map(ToString::to_string).collect();
        let mut transaction = self.pool.begin().await?;
        // The hash is unique, so that two first sign-ins of one person create one account.
        let key = sqlx::query!(
            r#"
            insert into api_keys (id, tenant_id, name, prefix, hash, scopes, created_at, is_account)
            values ($1, $2, $3, '', $4, $5, longhaul_now(), true)
            on conflict (hash) do update
            set tenant_id = excluded.tenant_id, name = excluded.name, scopes = excluded.scopes
            where api_keys.revoked_at is null
            returning id
            "#,
            Uuid::new_v4(),
            person.tenant.0,
            person.name,
            hash,
            &scopes,
        )
        .fetch_optional(&mut *transaction)
        .await?;
        let Some(key) = key else { return Ok(None) };
        sqlx::query!(
            r#"
            insert into accounts (key_id, issuer, subject, email, roles, signed_in_at)
            values ($1, $2, $3, $4, $5, longhaul_now())
            on conflict (key_id) do update
            set email = excluded.email, roles = excluded.roles, signed_in_at = excluded.signed_in_at
            "#,
            key.id,
            person.issuer,
            person.subject,
            person.email,
            &roles,
        )
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(Some(hash))
    }

    /// Up to `limit` accounts of these tenants by id, after the account `after`.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn list_accounts(
        &self,
        reach: &TenantScope,
        after: Option<Uuid>,
        limit: i64,
    ) -> Result<Vec<Account>, StoreError> {
        let tenants = reach.ids();
        let rows = select_accounts!(
            r#"
            where ($1::uuid[] is null or k.tenant_id = any ($1)) and ($2::uuid is null or a.key_id > $2)
            order by a.key_id
            limit $3
            "#,
            tenants.as_deref(),
            after,
            limit,
        );
        Ok(rows.fetch_all(&self.pool).await?)
    }

    /// The account of these tenants with that id.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn find_account(&self, reach: &TenantScope, id: ApiKeyId) -> Result<Option<Account>, StoreError> {
        let tenants = reach.ids();
        let row = select_accounts!(
            "where a.key_id = $2 and ($1::uuid[] is null or k.tenant_id = any ($1))",
            tenants.as_deref(),
            id.0,
        );
        Ok(row.fetch_optional(&self.pool).await?)
    }

    /// Disables an account, which ends its sessions, or enables it again. Returns the hash by which sessions name it,
    /// or `None` if these tenants have no such account.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn set_account_disabled(
        &self,
        reach: &TenantScope,
        id: ApiKeyId,
        is_disabled: bool,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let tenants = reach.ids();
        let mut transaction = self.pool.begin().await?;
        let account = sqlx::query!(
            r#"
            update api_keys k set
                revoked_at = case when $3 then coalesce(k.revoked_at, longhaul_now()) end,
                sessions_ended_at = case when $3 then longhaul_now() else k.sessions_ended_at end
            from accounts a
            where a.key_id = k.id and k.id = $2 and ($1::uuid[] is null or k.tenant_id = any ($1))
            returning k.hash, k.tenant_id
            "#,
            tenants.as_deref(),
            id.0,
            is_disabled,
        )
        .fetch_optional(&mut *transaction)
        .await?;
        let Some(account) = account else { return Ok(None) };
        settle_channels(&mut transaction, account.tenant_id).await?;
        transaction.commit().await?;
        Ok(Some(account.hash))
    }
}

/// Hash by which sessions name an account. No secret: sessions are signed, and the hash of a bearer key is keyed.
fn hash_of(issuer: &str, subject: &str) -> Vec<u8> {
    let mut hash = Sha256::new();
    for part in ["account", issuer, subject] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn account_is_named_by_issuer_and_subject() {
        assert_eq!(hash_of("https://a", "7"), hash_of("https://a", "7"));
        assert_ne!(hash_of("https://a", "7"), hash_of("https://a7", ""));
        assert_ne!(hash_of("https://a", "7"), hash_of("https://b", "7"));
    }

    #[test]
    fn roles_add_up_and_only_superadmin_crosses_tenants() {
        let of = |roles: &[Role]| scopes_of(roles, &[]);
        let viewer = of(&[Role::Viewer]);
        assert_eq!(viewer, [Scope::ExecutionsRead, Scope::DefinitionsRead]);
        for role in Role::ALL {
            assert!(viewer.iter().all(|scope| of(&[*role]).contains(scope)), "{role}");
            assert_eq!(of(&[*role]).contains(&Scope::Admin), *role == Role::Superadmin);
        }
        let both = of(&[Role::Operator, Role::Approver]);
        assert!(both.contains(&Scope::ExecutionsWrite) && both.contains(&Scope::ApprovalsDecide));
        assert!(!of(&[Role::Operator]).contains(&Scope::ApprovalsDecide));
        assert_eq!(of(Role::ALL), Scope::ALL);
        let with_more = scopes_of(&[Role::Viewer], &[Scope::AuditRead, Scope::ExecutionsRead]);
        assert_eq!(with_more, [Scope::ExecutionsRead, Scope::DefinitionsRead, Scope::AuditRead]);
        assert_eq!(of(&[]), []);
    }
}
