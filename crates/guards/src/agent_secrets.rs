//! Sealing of literal secrets of tool servers. They are stored in the record of an agent that all tenants share and
//! are never shown.
//!
//! A value of a server's header or environment variable is a secret unless it is a reference to a variable of the
//! workers (`env://NAME`), which may be shown.

use longhaul_sdk::spec::{AgentSpec, McpServerSpec};
use secrecy::ExposeSecret;
use serde_json::Value;

use crate::sealing::{SEALED, SealError, Sealer};
use longhaul_domain::secret_reference::split_at_reference;

/// Placeholder shown instead of a literal secret. In an update it means the value stored for the same server.
pub const SECRET: &str = "[secret]";

/// A literal secret that cannot be stored.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct NotSealed {
    /// JSON Pointer into the agent.
    pub path: String,
    pub reason: String,
}

/// Seals the literals of `spec`. A value equal to that of `known` (the newest stored version), or written as
/// [`SECRET`], keeps the stored ciphertext, so that storing an agent twice makes one version. A server with another
/// `url` or `command` keeps none: the author of the change may not know the secrets and would have them sent there.
///
/// # Errors
/// Fails if no key is configured, if a value is already sealed, or if [`SECRET`] has no stored value.
pub fn seal(spec: &mut AgentSpec, known: Option<&AgentSpec>, sealer: &Sealer) -> Result<(), NotSealed> {
    for (name, server) in &mut spec.mcp_servers {
        let stored = known.and_then(|known| known.mcp_servers.get(name));
        let McpServerSpec { url, command, headers, env, .. } = server;
        let stored = stored.filter(|stored| (&stored.url, &stored.command) == (&*url, &*command));
        for (field, values, stored) in
            [("headers", headers, stored.map(|stored| &stored.headers)), ("env", env, stored.map(|stored| &stored.env))]
        {
            for (key, value) in values {
                let kept = stored.and_then(|stored| stored.get(key));
                if let Err(reason) = seal_one(value, kept, sealer) {
                    return Err(NotSealed { path: format!("/mcp_servers/{name}/{field}/{key}"), reason });
                }
            }
        }
    }
    Ok(())
}

fn seal_one(value: &mut String, kept: Option<&String>, sealer: &Sealer) -> Result<(), String> {
    if value == SECRET {
        value.clone_from(kept.ok_or("stands for a secret stored for the same server, and there is none")?);
        return Ok(());
    }
    if is_reference(value) || value.is_empty() {
        return Ok(());
    }
    // A sealed text may be copied from another record; storing it would open that secret for this agent.
    if value.starts_with(SEALED) {
        return Err("cannot be given sealed".to_owned());
    }
    let is_kept = |kept: &&String| sealer.open(kept).is_ok_and(|open| open.expose_secret() == value.as_str());
    match kept.filter(is_kept) {
        Some(kept) => value.clone_from(kept),
        None => *value = sealer.seal(value).map_err(|error: SealError| error.to_string())?,
    }
    Ok(())
}

fn is_reference(value: &str) -> bool {
    split_at_reference(value).is_some()
}

/// Replaces each literal secret of a serialized agent with [`SECRET`].
pub fn hide(spec: &mut Value) {
    let servers = spec.get_mut("mcp_servers").and_then(Value::as_object_mut);
    for server in servers.into_iter().flat_map(|servers| servers.values_mut()) {
        for field in ["headers", "env"] {
            let values = server.get_mut(field).and_then(Value::as_object_mut);
            for value in values.into_iter().flat_map(|values| values.values_mut()) {
                if value.as_str().is_some_and(|text| !text.is_empty() && !is_reference(text)) {
                    *value = SECRET.into();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;
    use serde_json::json;

    use super::*;

    fn agent(authorization: &str) -> AgentSpec {
        let server = json!({"url": "https://x", "headers": {"authorization": authorization, "x-id": "env://ID"}});
        let spec = json!({"key": "a", "name": "A", "prompts": {"conversation": ""}, "mcp_servers": {"s": server}});
        serde_json::from_value(spec).unwrap()
    }

    fn header(agent: &AgentSpec) -> &str {
        &agent.mcp_servers["s"].headers["authorization"]
    }

    #[test]
    fn literals_are_sealed_once_and_references_stay() {
        let sealer = Sealer::new(&[SecretString::from("a key")]);
        let mut first = agent("Bearer hunter2");
        seal(&mut first, None, &sealer).unwrap();
        assert!(header(&first).starts_with(SEALED));
        assert_eq!(first.mcp_servers["s"].headers["x-id"], "env://ID");
        for again in ["Bearer hunter2", SECRET] {
            let mut put = agent(again);
            seal(&mut put, Some(&first), &sealer).unwrap();
            assert_eq!(put, first, "{again}");
        }
        let mut changed = agent("Bearer other");
        seal(&mut changed, Some(&first), &sealer).unwrap();
        assert_ne!(header(&changed), header(&first));
        assert_eq!(sealer.open(header(&first)).unwrap().expose_secret(), "Bearer hunter2");
        let mut shown = serde_json::to_value(&first).unwrap();
        hide(&mut shown);
        assert_eq!(shown["mcp_servers"]["s"]["headers"], json!({"authorization": SECRET, "x-id": "env://ID"}));
    }

    #[test]
    fn unsealable_secret_is_refused_with_its_path() {
        let sealer = Sealer::new(&[SecretString::from("a key")]);
        for (value, sealer) in [("literal", &Sealer::default()), (SECRET, &sealer), ("sealed:v1:x", &sealer)] {
            let refused = seal(&mut agent(value), None, sealer).unwrap_err();
            assert_eq!(refused.path, "/mcp_servers/s/headers/authorization", "{value}");
        }
    }

    #[test]
    fn another_server_gets_no_stored_secret() {
        let sealer = Sealer::new(&[SecretString::from("a key")]);
        let mut stored = agent("Bearer hunter2");
        seal(&mut stored, None, &sealer).unwrap();
        for (url, command) in [(Some("https://y"), vec![]), (None, vec!["sh".to_owned()])] {
            let mut moved = agent(SECRET);
            let server = moved.mcp_servers.get_mut("s").unwrap();
            (server.url, server.command) = (url.map(str::to_owned), command);
            let refused = seal(&mut moved, Some(&stored), &sealer).unwrap_err();
            assert!(refused.reason.contains("the same server"), "{refused}");
        }
    }
}
