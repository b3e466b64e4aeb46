//! Names of server tools: `mcp__<server>__<tool>`, split at the first two `__`. `fit.rs` makes them.

use longhaul_sdk::spec::McpServerSpec;

use crate::tool_name::is_valid_name;

pub(super) const PREFIX: &str = "mcp__";

/// Splits a full name into server and tool; `None` for the name of any other tool.
pub(crate) fn split_name(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix(PREFIX)?.split_once("__")
}

/// The server that provides `tool`, if it is a server's tool.
pub fn server_of(tool: &str) -> Option<&str> {
    split_name(tool).map(|(server, _)| server)
}

/// Checks an agent's declaration of a server. The error is a message for the agent's author.
///
/// # Errors
/// The server's name would make tool names ambiguous, not exactly one of `command` and `url` is set, or the URL
/// is not HTTP.
pub fn check_server(name: &str, spec: &McpServerSpec) -> Result<(), String> {
    // A trailing `_` would move the boundary: `mcp__a___b` splits into `a` and `_b`.
    if !is_valid_name(name) || name.contains("__") || name.ends_with('_') {
        return Err(format!(
            "tool server name `{name}` must be letters, digits, `-` and single `_`, and must not end in `_`"
        ));
    }
    match (&spec.url, spec.command.is_empty()) {
        (Some(_), false) => Err(format!("tool server `{name}` has both `command` and `url`")),
        (None, true) => Err(format!("tool server `{name}` has neither `command` nor `url`")),
        (None, false) => Ok(()),
        (Some(url), true) => match url::Url::parse(url) {
            Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(()),
            Ok(url) => Err(format!("tool server `{name}`: scheme `{}` is not http or https", url.scheme())),
            Err(error) => Err(format!("tool server `{name}`: url: {error}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(url: &str) -> McpServerSpec {
        serde_json::from_value(serde_json::json!({ "url": url })).unwrap()
    }

    #[test]
    fn full_names_split_back_into_server_and_tool() {
        for (server, tool) in [("files", "read"), ("a-b_c", "get__all"), ("s", "_x")] {
            let name = format!("{PREFIX}{server}__{tool}");
            assert_eq!(split_name(&name), Some((server, tool)), "{name}");
        }
        assert_eq!(split_name("fetch_url"), None);
        assert_eq!(split_name("mcp__only"), None);
    }

    #[test]
    fn ambiguous_names_of_servers_are_refused() {
        for bad in ["", "a__b", "a_", "a b", "ä"] {
            assert!(check_server(bad, &http("http://h/")).is_err(), "{bad}");
        }
    }

    #[test]
    fn server_needs_either_command_or_url() {
        assert!(check_server("s", &http("https://h/mcp")).is_ok());
        assert!(check_server("s", &http("file:///etc/passwd")).unwrap_err().contains("`file`"));
        assert!(check_server("s", &http("::")).is_err());
        let mut both = http("https://h/mcp");
        both.command = vec!["x".into()];
        assert!(check_server("s", &both).unwrap_err().contains("both"));
        both.url = None;
        assert!(check_server("s", &both).is_ok());
        both.command.clear();
        assert!(check_server("s", &both).unwrap_err().contains("neither"));
    }
}
