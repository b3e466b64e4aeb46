//! API keys: `lh_<8 of prefix>_<40 of secret>`. The database stores an HMAC under a pepper kept outside of it, so
//! a stolen table opens nothing and cannot be searched by guessing.

use std::{fmt, ops::Deref, sync::Arc};

use chrono::{DateTime, Utc};
use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;
use strum::{Display, EnumString, IntoStaticStr, VariantArray};
use subtle::ConstantTimeEq;

use super::audit_log::ActorKind;
use crate::{Store, StoreError};
use longhaul_domain::{ApiKeyId, TenantId};

const PREFIX_CHARS: usize = 8;
/// 40 base62 characters are 238 bits.
const SECRET_CHARS: usize = 40;
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Permission of a key. The names are part of the API.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Display, EnumString, IntoStaticStr, VariantArray,
)]
pub enum Scope {
    /// Read executions, their steps, attempts and events.
    #[strum(serialize = "executions:read")]
    ExecutionsRead,
    /// Submit, cancel and retry executions.
    #[strum(serialize = "executions:write")]
    ExecutionsWrite,
    /// Decide on approvals. Not an everyday scope: a submitter should not also decide.
    #[strum(serialize = "approvals:decide")]
    ApprovalsDecide,
    /// Read agents and definitions.
    #[strum(serialize = "definitions:read")]
    DefinitionsRead,
    /// Put and remove versions of agents and definitions.
    #[strum(serialize = "definitions:write")]
    DefinitionsWrite,
    /// Run executions of remote definitions, as a worker over HTTP: it reads their inputs and writes their results.
    #[strum(serialize = "workers:run")]
    WorkersRun,
    /// List, create, rotate and revoke the keys of its tenant.
    #[strum(serialize = "keys:write")]
    KeysWrite,
    /// Read the audit log of its tenant.
    #[strum(serialize = "audit:read")]
    AuditRead,
    /// Read across tenants, and publish shared agents and definitions.
    #[strum(serialize = "admin")]
    Admin,
}

impl Scope {
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Name as stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Parses a name; `None` for an unknown one.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        name.parse().ok()
    }
}

/// Secret with which keys are hashed and cookies signed. Changing it revokes every key.
#[derive(Clone)]
pub struct Pepper(Arc<SecretString>);

impl fmt::Debug for Pepper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pepper([REDACTED])")
    }
}

impl From<SecretString> for Pepper {
    fn from(secret: SecretString) -> Self {
        Self(Arc::new(secret))
    }
}

impl Pepper {
    /// HMAC-SHA-256 of `parts` for one `purpose`. A code for one purpose is invalid for another.
    #[must_use]
    pub fn mac(&self, purpose: &str, parts: &[&[u8]]) -> Vec<u8> {
        // HMAC takes keys of any length, so this cannot fail; an empty code would verify nothing.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(self.0.expose_secret().as_bytes()) else { return Vec::new() };
        for part in [purpose.as_bytes()].iter().chain(parts) {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac.finalize().into_bytes().to_vec()
    }

    /// Returns true if `code` is the [`Self::mac`] of the same parts, in constant time.
    #[must_use]
    pub fn verifies(&self, purpose: &str, parts: &[&[u8]], code: &[u8]) -> bool {
        let expected = self.mac(purpose, parts);
        !expected.is_empty() && bool::from(expected.ct_eq(code))
    }

    /// Hash of a key, as stored.
    #[must_use]
    pub fn key_hash(&self, key: &str) -> Vec<u8> {
        self.mac("api-key", &[key.as_bytes()])
    }
}

/// A new key, shown only once.
#[derive(Debug, Clone)]
pub struct IssuedKey {
    pub id: ApiKeyId,
    /// The full key, which is not stored.
    pub key: SecretString,
    /// First characters, by which people recognise the key.
    pub prefix: String,
}

/// A stored key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    pub id: ApiKeyId,
    pub tenant_id: TenantId,
    /// Organisation of the tenant.
    pub org_id: String,
    /// Group of the tenant.
    pub group_id: Option<String>,
    /// Name given at its creation.
    pub name: String,
    /// First characters of the key.
    pub prefix: String,
    pub scopes: KeyScopes,
    pub state: KeyState,
    pub created_at: DateTime<Utc>,
    pub expires_at: Option<DateTime<Utc>>,
    pub revoked_at: Option<DateTime<Utc>>,
    /// Last use, exact to about a minute.
    pub last_used_at: Option<DateTime<Utc>>,
    /// Key that the newest rotation made in its place.
    pub replaced_by: Option<ApiKeyId>,
    /// Time of the last sign-out: sessions that began before it are invalid.
    pub sessions_ended_at: Option<DateTime<Utc>>,
    /// A person for an account, which is a key without a secret.
    pub actor: ActorKind,
}

/// Scopes of a stored key. Those of a newer release are ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyScopes(Vec<Scope>);

impl From<Vec<String>> for KeyScopes {
    fn from(names: Vec<String>) -> Self {
        Self(names.iter().filter_map(|name| Scope::parse(name)).collect())
    }
}

impl Deref for KeyScopes {
    type Target = [Scope];

    fn deref(&self) -> &[Scope] {
        &self.0
    }
}

/// State of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum KeyState {
    Active,
    Expired,
    Revoked,
}

longhaul_domain::named!(KeyState);

/// Returns true if `text` has the form of a key; anything else needs no look-up.
#[must_use]
pub fn is_well_formed(text: &str) -> bool {
    let mut parts = text.splitn(3, '_');
    let base62 = |part: &str, min: usize, max: usize| {
        (min..=max).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    parts.next() == Some("lh")
        && parts.next().is_some_and(|prefix| base62(prefix, PREFIX_CHARS, PREFIX_CHARS))
        && parts.next().is_some_and(|secret| base62(secret, 32, 128))
}

/// A new key and its prefix.
pub(super) fn random_key() -> Result<(SecretString, String), StoreError> {
    let prefix = random_base62(PREFIX_CHARS)?;
    let key = format!("lh_{prefix}_{}", random_base62(SECRET_CHARS)?);
    Ok((key.into(), prefix))
}

fn random_base62(count: usize) -> Result<String, StoreError> {
    let mut text = String::with_capacity(count);
    let mut bytes = [0_u8; 64];
    while text.len() < count {
        getrandom::fill(&mut bytes).map_err(|error| StoreError::Corrupt(format!("no random bytes: {error}")))?;
        // 248 is the largest multiple of 62 in a byte; greater values would favour the first letters.
        let fair = bytes.iter().filter(|&&byte| byte < 248).map(|&byte| char::from(BASE62[usize::from(byte) % 62]));
        text.extend(fair.take(count - text.len()));
    }
    Ok(text)
}

/// A query for rows of keys with their state, which ends with the given condition.
macro_rules! select_keys {
    ($condition:literal, $($bind:expr),+ $(,)?) => {
        sqlx::query_as!(
            $crate::tenants::api_keys::ApiKey,
            r#"
            select k.id, k.tenant_id, t.org_id, nullif(t.group_id, '') as group_id, k.name, k.prefix, k.scopes,
                case
                    when k.revoked_at is not null then 'revoked'
                    when k.expires_at <= longhaul_now() then 'expired'
                    else 'active'
                end as "state!: _",
                k.created_at, k.expires_at, k.revoked_at, k.last_used_at, k.replaced_by as "replaced_by: _",
                k.sessions_ended_at, case when k.is_account then 'person' else 'key' end as "actor!: _"
            from api_keys k join tenants t on t.id = k.tenant_id
            "# + $condition,
            $($bind),+
        )
    };
}
pub(super) use select_keys;

impl Store {
    /// The key with that hash, in any state.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn find_api_key(&self, hash: &[u8]) -> Result<Option<ApiKey>, StoreError> {
        Ok(select_keys!("where k.hash = $1", hash).fetch_optional(&self.pool).await?)
    }

    /// Ends every session of the page that was signed in with the key of that hash, if the session that
    /// began at `began_at` is still valid; API processes honour it within 10 s.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn end_sessions(&self, hash: &[u8], began_at: DateTime<Utc>) -> Result<(), StoreError> {
        // A cookie of an ended session must not end the sessions begun since.
        sqlx::query!(
            "update api_keys set sessions_ended_at = longhaul_now() \
             where hash = $1 and (sessions_ended_at is null or sessions_ended_at < $2)",
            hash,
            began_at,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_key_is_not_looked_up() {
        let good = format!("lh_{}_{}", random_base62(8).unwrap(), random_base62(40).unwrap());
        assert!(is_well_formed(&good), "{good}");
        for bad in ["", "lh_", "lh_abcdefgh_short", &good.replace("lh_", "lx_"), &format!("{good}!")] {
            assert!(!is_well_formed(bad), "{bad}");
        }
    }

    #[test]
    fn mac_is_bound_to_purpose_parts_and_pepper() {
        let pepper = Pepper::from(SecretString::from("p"));
        let code = pepper.mac("cookie", &[b"ab", b"c"]);
        assert!(pepper.verifies("cookie", &[b"ab", b"c"], &code));
        assert!(!pepper.verifies("cookie", &[b"a", b"bc"], &code));
        assert!(!pepper.verifies("api-key", &[b"ab", b"c"], &code));
        assert!(!Pepper::from(SecretString::from("q")).verifies("cookie", &[b"ab", b"c"], &code));
    }
}
