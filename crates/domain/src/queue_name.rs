//! Names of queues.

use std::{fmt, str::FromStr, sync::Arc};

/// Queue of the messages of sessions. Within a tenant, claims take it before every other queue (`longhaul_weigh`).
pub const INTERACTIVE_QUEUE: &str = "interactive";

/// Queue of executions that name none, and of those that Longhaul submits itself.
pub const DEFAULT_QUEUE: &str = "default";

/// Pattern of a [`QueueName`].
pub const QUEUE_PATTERN: &str = "^[a-z0-9._-]{1,64}$";

/// Name of a queue: 1 to 64 characters of `a-z 0-9 . _ -`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueName(Arc<str>);

impl QueueName {
    /// # Errors
    /// [`InvalidQueueName`] if the name is empty, too long or has another character.
    pub fn new(name: &str) -> Result<Self, InvalidQueueName> {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-');
        if name.is_empty() || name.len() > 64 || !name.chars().all(allowed) {
            return Err(InvalidQueueName { name: name.chars().take(80).collect() });
        }
        Ok(Self(name.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for QueueName {
    type Err = InvalidQueueName;

    fn from_str(name: &str) -> Result<Self, InvalidQueueName> {
        Self::new(name)
    }
}

/// A queue name that breaks the rule of [`QueueName`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("queue name {name:?} must be 1 to 64 characters of a-z, 0-9, '.', '_' and '-'")]
pub struct InvalidQueueName {
    name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_names_are_short_and_plain() {
        let pattern = regex::Regex::new(QUEUE_PATTERN).unwrap();
        for good in ["a", "default", "billing.eu-1_x", &"q".repeat(64)] {
            assert_eq!(QueueName::new(good).unwrap().as_str(), good);
            assert!(pattern.is_match(good), "{good:?}");
        }
        for bad in ["", "Default", "a b", "a:b", "{a}", "ä", &"q".repeat(65)] {
            assert!(QueueName::new(bad).is_err() && !pattern.is_match(bad), "{bad:?} was accepted");
        }
    }
}
