//! A person, from the claims of a provider.

use longhaul_config::OidcOptions;
use longhaul_domain::{Role, cut};
use serde_json::Value;

use crate::error::SignInError;

/// Largest number of characters of a name or an address.
const MAX_NAME: usize = 100;
/// Largest number of characters of a subject, an organisation or a group; of the first, also the specification's limit
/// (OpenID Connect Core 1.0, section 2).
const MAX_ID: usize = 255;

/// A person who signed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// Identifier of the person at the provider, which stays the same.
    pub subject: String,
    /// Name for people, from `name`, `preferred_username`, `email` or the subject.
    pub name: String,
    pub email: Option<String>,
    pub org_id: String,
    pub group_id: Option<String>,
    /// At least one.
    pub roles: Vec<Role>,
}

impl Person {
    /// # Errors
    /// [`SignInError::NoRole`], or [`SignInError::NoTenant`] if the claims name no organisation.
    pub(crate) fn of(claims: &Value, options: &OidcOptions) -> Result<Self, SignInError> {
        let text = |name: &str| claims[name].as_str().filter(|text| is_plain(text));
        let id = |claim: &str| text(claim).filter(|id| id.chars().count() <= MAX_ID).map(str::to_owned);
        let subject = id("sub").ok_or(SignInError::Refused("the token has no usable subject".into()))?;
        let org_id = match (&options.org_id, &options.org_claim) {
            (Some(org_id), _) => Some(org_id.clone()),
            (None, Some(claim)) => id(claim),
            (None, None) => None,
        };
        let values: Vec<&str> = match &claims[&options.roles_claim] {
            Value::String(value) => vec![value],
            Value::Array(values) => values.iter().filter_map(Value::as_str).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
        };
        let roles = options.roles.of(&values);
        if roles.is_empty() {
            return Err(SignInError::NoRole);
        }
        // A missing group must not make a person of a group one of the whole organisation.
        let group_id = match &options.group_claim {
            Some(claim) => Some(id(claim).ok_or(SignInError::NoTenant)?),
            None => None,
        };
        let name = ["name", "preferred_username", "email", "sub"].into_iter().find_map(text).unwrap_or_default();
        Ok(Self {
            name: cut(name, MAX_NAME).into_owned(),
            email: text("email").map(|email| cut(email, MAX_NAME).into_owned()),
            subject,
            org_id: org_id.ok_or(SignInError::NoTenant)?,
            group_id,
            roles,
        })
    }

    /// True if a claim that decides about the person is missing, so that the user info endpoint is asked for it.
    pub(crate) fn lacks(claims: &Value, options: &OidcOptions) -> bool {
        let deciding = [Some(&options.roles_claim), options.org_claim.as_ref(), options.group_claim.as_ref()];
        let mut wanted = deciding.into_iter().flatten().map(String::as_str).chain(["name", "email"]);
        wanted.any(|claim| claims.get(claim).is_none_or(Value::is_null))
    }
}

/// True for a text that can be stored and shown in one line.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use longhaul_config::OidcRoles;
    use serde_json::json;

    use super::*;

    fn options() -> OidcOptions {
        OidcOptions {
            issuer: "https://id.example".into(),
            client_id: "longhaul".into(),
            client_secret: None,
            label: "Example".into(),
            redirect_url: "https://longhaul.example/login/oidc/callback".parse().unwrap(),
            scopes: Vec::new(),
            org_id: None,
            org_claim: Some("org".into()),
            group_claim: None,
            roles_claim: "groups".into(),
            roles: OidcRoles { viewer: vec!["staff".into()], admin: vec!["ops".into()], ..OidcRoles::default() },
        }
    }

    #[test]
    fn claims_give_name_tenant_and_roles() {
        let claims = json!({ "sub": "7", "email": "ada@example.org", "org": "acme", "groups": ["ops", 3, "staff"] });
        let person = Person::of(&claims, &options()).unwrap();
        assert_eq!((person.name.as_str(), person.org_id.as_str()), ("ada@example.org", "acme"));
        assert_eq!(person.roles, [Role::Viewer, Role::Admin]);
        let one = json!({ "sub": "7", "org": "acme", "groups": "staff", "name": "A\u{0}", "email": "" });
        let one = Person::of(&one, &options()).unwrap();
        assert_eq!((one.name.as_str(), one.email, one.roles), ("7", None, vec![Role::Viewer]));
    }

    #[test]
    fn person_without_role_or_tenant_is_refused() {
        let of = |claims: Value| Person::of(&claims, &options());
        let tenant = |value: Value| of(json!({ "sub": "7", "org": value, "groups": ["staff"] }));
        for bad in [json!(null), json!(""), json!("a\nb"), json!(["acme"]), json!("x".repeat(256))] {
            assert!(matches!(tenant(bad.clone()), Err(SignInError::NoTenant)), "{bad}");
        }
        for bad in [json!(null), json!([]), json!(["other"]), json!("*"), json!({ "staff": true })] {
            let found = of(json!({ "sub": "7", "org": "acme", "groups": bad }));
            assert!(matches!(found, Err(SignInError::NoRole)), "{bad}");
        }
        let grouped = OidcOptions { group_claim: Some("team".into()), ..options() };
        let no_team = Person::of(&json!({ "sub": "7", "org": "acme", "groups": ["staff"] }), &grouped);
        assert!(matches!(no_team, Err(SignInError::NoTenant)));
    }

    #[test]
    fn user_info_is_asked_for_missing_claims_only() {
        let all = json!({ "sub": "7", "name": "Ada", "email": "a@b", "org": "acme", "groups": [] });
        assert!(!Person::lacks(&all, &options()));
        for claim in ["name", "email", "org", "groups"] {
            let mut some = all.clone();
            some[claim] = Value::Null;
            assert!(Person::lacks(&some, &options()), "{claim}");
        }
    }
}
