//! `[oidc]`: sign-in of people with an OpenID Connect provider.

use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use url::Url;

use super::{ConfigError, Rules, secret::reveal, units};
use longhaul_domain::Role;

/// Value of the claim that every person has.
const EVERY_PERSON: &str = "*";

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct OidcConfig {
    /// Issuer. `None`: people sign in with API keys only.
    #[serde(with = "units::url_or_nothing")]
    pub issuer: Option<String>,
    #[serde(with = "units::text")]
    pub client_id: Option<String>,
    #[serde(with = "units::secret")]
    pub client_secret: Option<SecretString>,
    /// URL of the API as browsers reach it.
    #[serde(with = "units::url_or_nothing")]
    pub public_url: Option<String>,
    /// Name of the provider on the sign-in button.
    pub label: String,
    /// Scopes requested beside `openid`.
    #[serde(deserialize_with = "units::list::deserialize")]
    pub scopes: Vec<String>,
    #[serde(with = "units::text")]
    pub org_id: Option<String>,
    #[serde(with = "units::text")]
    pub org_claim: Option<String>,
    #[serde(with = "units::text")]
    pub group_claim: Option<String>,
    pub roles_claim: String,
    pub roles: OidcRoles,
}

/// Values of the claim `roles_claim` that give each role.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
pub struct OidcRoles {
    #[serde(deserialize_with = "units::list::deserialize")]
    pub viewer: Vec<String>,
    #[serde(deserialize_with = "units::list::deserialize")]
    pub operator: Vec<String>,
    #[serde(deserialize_with = "units::list::deserialize")]
    pub approver: Vec<String>,
    #[serde(deserialize_with = "units::list::deserialize")]
    pub admin: Vec<String>,
    #[serde(deserialize_with = "units::list::deserialize")]
    pub superadmin: Vec<String>,
}

impl OidcRoles {
    fn values(&self, role: Role) -> &[String] {
        match role {
            Role::Viewer => &self.viewer,
            Role::Operator => &self.operator,
            Role::Approver => &self.approver,
            Role::Admin => &self.admin,
            Role::Superadmin => &self.superadmin,
        }
    }

    /// Roles of a person whose claim has these values.
    #[must_use]
    pub fn of(&self, values: &[&str]) -> Vec<Role> {
        let is_given = |named: &String| named == EVERY_PERSON || values.contains(&named.as_str());
        Role::ALL.iter().copied().filter(|role| self.values(*role).iter().any(is_given)).collect()
    }
}

/// Settings of a provider.
#[derive(Debug, Clone)]
pub struct OidcOptions {
    pub issuer: String,
    pub client_id: String,
    /// `None` for a public client.
    pub client_secret: Option<SecretString>,
    /// Name for people.
    pub label: String,
    /// Where the provider sends people back to.
    pub redirect_url: Url,
    pub scopes: Vec<String>,
    /// Organisation of all people; `None` if `org_claim` names it.
    pub org_id: Option<String>,
    pub org_claim: Option<String>,
    pub group_claim: Option<String>,
    pub roles_claim: String,
    pub roles: OidcRoles,
}

impl OidcConfig {
    /// `None`: people sign in with API keys only.
    ///
    /// # Errors
    /// [`ConfigError::Reference`] if the secret refers to a variable that is not set.
    pub fn options(&self) -> Result<Option<OidcOptions>, ConfigError> {
        let (Some(issuer), Some(client_id), Some(redirect_url)) = (&self.issuer, &self.client_id, self.redirect_url())
        else {
            return Ok(None);
        };
        Ok(Some(OidcOptions {
            issuer: issuer.clone(),
            client_id: client_id.clone(),
            client_secret: self.client_secret.as_ref().map(reveal).transpose()?,
            label: self.label.clone(),
            redirect_url,
            scopes: self.scopes.clone(),
            org_id: self.org_id.clone(),
            org_claim: self.org_claim.clone(),
            group_claim: self.group_claim.clone(),
            roles_claim: self.roles_claim.clone(),
            roles: self.roles.clone(),
        }))
    }

    fn redirect_url(&self) -> Option<Url> {
        Url::parse(&format!("{}/login/oidc/callback", self.public_url.as_deref()?.trim_end_matches('/'))).ok()
    }

    pub(super) fn check(&self, rules: &mut Rules) {
        let set = [self.issuer.is_some(), self.client_id.is_some(), self.public_url.is_some()];
        let is_uniform = set == [true; 3] || set == [false; 3];
        rules.require(is_uniform, "oidc.issuer, oidc.client_id and oidc.public_url must be set together");
        for (name, url) in [("oidc.issuer", &self.issuer), ("oidc.public_url", &self.public_url)] {
            let is_safe = url.as_ref().is_none_or(|url| is_https_or_local(url));
            rules.require(is_safe, &format!("{name} must be an https URL, or an http URL of this machine"));
        }
        if self.issuer.is_some() {
            rules.require(
                self.org_id.is_some() != self.org_claim.is_some(),
                "either oidc.org_id or oidc.org_claim must be set",
            );
            let gives_roles = Role::ALL.iter().any(|role| !self.roles.values(*role).is_empty());
            rules.require(gives_roles, "oidc.roles must give at least one role, or no person can sign in");
        }
    }
}

/// Passwords and codes cross the network only under TLS.
fn is_https_or_local(text: &str) -> bool {
    let Ok(url) = Url::parse(text) else { return false };
    let is_local = matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
    url.scheme() == "https" || (url.scheme() == "http" && is_local)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_follow_the_values_of_the_claim() {
        let list = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
        let roles = OidcRoles { viewer: list(&["*"]), admin: list(&["ops", "boss"]), ..OidcRoles::default() };
        assert_eq!(roles.of(&[]), [Role::Viewer]);
        assert_eq!(roles.of(&["boss", "other"]), [Role::Viewer, Role::Admin]);
        assert_eq!(OidcRoles::default().of(&["*"]), []);
    }

    #[test]
    fn provider_without_tls_is_refused_unless_local() {
        for good in ["https://id.example", "http://localhost:3000", "http://127.0.0.1:1/x", "http://[::1]:2"] {
            assert!(is_https_or_local(good), "{good}");
        }
        for bad in ["http://id.example", "http://localhost.example", "ftp://localhost", "id.example"] {
            assert!(!is_https_or_local(bad), "{bad}");
        }
    }
}
