//! How settings are written and read: durations in seconds, empty text as "not set", secrets never shown.
//!
//! Each module is a pair for `#[serde(with)]`; serialising is for `config check` and shows what a process would run with.

use secrecy::SecretString;
use serde::{Deserialize, Deserializer, Serializer, de::Error};

/// Shown instead of a secret that is set.
const REDACTED: &str = "[redacted]";

/// A duration, as a number of seconds.
pub(super) mod seconds {
    use std::time::Duration;

    use super::*;

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let seconds = f64::deserialize(from)?;
        Duration::try_from_secs_f64(seconds)
            .map_err(|_| D::Error::custom(format!("{seconds} is not a duration in seconds")))
    }

    pub(in crate::config) fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(duration.as_secs_f64())
    }
}

/// A text that may be empty, which means "not set".
pub(super) mod text {
    use super::*;

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
        Ok(Some(String::deserialize(from)?).filter(|text| !text.is_empty()))
    }

    pub(in crate::config) fn serialize<S: Serializer>(text: &Option<String>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(text.as_deref().unwrap_or_default())
    }
}

/// Address and port to listen on; empty means "nowhere".
pub(super) mod address {
    use std::net::SocketAddr;

    use super::*;

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
        let address = |text: String| {
            text.parse().map_err(|_| D::Error::custom(format!("{text:?} is not an address with a port")))
        };
        text::deserialize(from)?.map(address).transpose()
    }

    pub(in crate::config) fn serialize<S: Serializer>(address: &Option<SocketAddr>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&address.map(|address| address.to_string()).unwrap_or_default())
    }
}

/// A secret, or a reference to one; empty means "not set".
pub(super) mod secret {
    use super::*;

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SecretString>, D::Error> {
        Ok(text::deserialize(from)?.map(SecretString::from))
    }

    pub(in crate::config) fn serialize<S: Serializer>(secret: &Option<SecretString>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(if secret.is_some() { REDACTED } else { "" })
    }
}

/// Named secrets.
pub(super) mod secrets {
    use std::collections::BTreeMap;

    use super::*;

    pub(in crate::config) fn serialize<S: Serializer>(
        secrets: &BTreeMap<String, SecretString>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_map(secrets.keys().map(|name| (name, REDACTED)))
    }
}

/// A list, or one text with commas, as environment variables give it.
pub(super) mod list {
    use super::*;

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum ListOrText {
        List(Vec<String>),
        Text(String),
    }

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
        Ok(match ListOrText::deserialize(from)? {
            ListOrText::List(list) => list,
            ListOrText::Text(text) => {
                text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
            }
        })
    }
}
