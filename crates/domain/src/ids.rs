//! Id types: each is a newtype over a UUID and serializes as one. Execution ids are UUIDv7 and sort by creation.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! id {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "sqlx", derive(sqlx::Type), sqlx(transparent))]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::from_str(text).map(Self)
            }
        }

        impl From<Uuid> for $name {
            fn from(uuid: Uuid) -> Self {
                Self(uuid)
            }
        }
    )*};
}

id! {
    /// One request to run a definition. A UUIDv7 from the database's clock.
    ExecutionId;
    /// One start of a worker process. Random; a dead id never becomes live again.
    WorkerId;
    /// Fencing token of one lease on an execution. Random; every write of the attempt carries it.
    LeaseToken;
    /// Owner of an execution: an organisation and a group within it.
    TenantId;
    /// One immutable version of an agent.
    AgentVersionId;
    /// One immutable version of a definition.
    DefinitionVersionId;
    /// One immutable version of a skill.
    SkillVersionId;
    /// One schedule. Random.
    ScheduleId;
    /// One API key.
    ApiKeyId;
    /// One request of an execution to a person. A UUIDv7 from the database's clock.
    HumanRequestId;
    /// One durable run: the model calls of a script outside. A UUIDv7 from the database's clock.
    RunId;
}

/// A text that is no id of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not `{prefix}` and 32 hexadecimal digits")]
pub struct InvalidId {
    prefix: &'static str,
}

macro_rules! prefixed_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "sqlx", derive(sqlx::Type), sqlx(transparent))]
        pub struct $name(pub Uuid);

        impl $name {
            const PREFIX: &str = $prefix;

            /// Generates a new id.
            #[must_use]
            pub fn random() -> Self {
                Self(Uuid::now_v7())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{}", Self::PREFIX, self.0.simple())
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let invalid = InvalidId { prefix: Self::PREFIX };
                let digits = text.strip_prefix(Self::PREFIX).filter(|digits| digits.len() == 32).ok_or(invalid)?;
                Uuid::try_parse(digits).map(Self).map_err(|_| invalid)
            }
        }

        impl From<Uuid> for $name {
            fn from(uuid: Uuid) -> Self {
                Self(uuid)
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

prefixed_id! {
    /// One session: a long-lived conversation with an agent. Written `sess_` and 32 hexadecimal digits.
    SessionId, "sess_"
}

prefixed_id! {
    /// One episode of an agent's memory. Written `ep_` and 32 hexadecimal digits.
    EpisodeId, "ep_"
}

prefixed_id! {
    /// One project: a goal, its plan, and the tasks of the plan. Written `proj_` and 32 hexadecimal digits.
    ProjectId, "proj_"
}

impl FileId {
    /// The id of a file that a call leaves: the same whenever the call leaves the same file.
    #[must_use]
    pub fn derived(hash: &[u8; 32]) -> Self {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash[..16]);
        Self(uuid::Builder::from_random_bytes(bytes).into_uuid())
    }
}

prefixed_id! {
    /// One file: an upload, or an artifact of an execution. Written `file_` and 32 hexadecimal digits.
    FileId, "file_"
}

impl WorkerId {
    /// Generates a new identity for this start of the process.
    #[must_use]
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}
impl LeaseToken {
    /// Returns a number in `0..1` derived from the token: pseudorandom across executions, constant for one lease.
    #[must_use]
    pub fn chance(self) -> f64 {
        f64::from(self.0.as_u128() as u32) / f64::from(u32::MAX)
    }
}
