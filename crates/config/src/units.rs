//! Serialization of settings: durations in seconds, empty text as "not set", secrets redacted.
//!
//! Each module is a pair for `#[serde(with)]`. `config check` serializes the settings to show the effective
//! configuration. `serde_with` has some of these, but not the messages that say how a value is written.

use secrecy::SecretString;
use serde::{Deserialize, Deserializer, Serializer, de::Error};

/// Placeholder of a secret that is set.
const REDACTED: &str = "[redacted]";

/// A duration, as a number of seconds.
pub(super) mod seconds {
    use std::time::Duration;

    use super::*;

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let seconds = f64::deserialize(from)?;
        Duration::try_from_secs_f64(seconds)
            .map_err(|_| D::Error::custom(format!("{seconds} is not a duration in seconds")))
    }

    pub(crate) fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(duration.as_secs_f64())
    }
}

/// A text; empty means "not set".
pub(super) mod text {
    use super::*;

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
        Ok(Some(String::deserialize(from)?).filter(|text| !text.is_empty()))
    }

    pub(crate) fn serialize<S: Serializer>(text: &Option<String>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(text.as_deref().unwrap_or_default())
    }
}

/// A URL, serialized without parts that may hold secrets: user information, query and fragment.
pub(super) mod url {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(url: &str, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&shown(url))
    }

    pub(super) fn shown(text: &str) -> String {
        let parsed = ::url::Url::parse(text).ok().filter(|url| !url.cannot_be_a_base());
        let Some(mut url) = parsed else {
            // In a text that does not parse as a URL, the secret part cannot be located.
            return if text.contains(['@', '?']) { REDACTED.to_owned() } else { text.to_owned() };
        };
        let has_user = !url.username().is_empty() || url.password().is_some();
        if !has_user && url.query().is_none() && url.fragment().is_none() {
            return text.to_owned();
        }
        let has_query = url.query().is_some();
        url.set_query(None);
        url.set_fragment(None);
        if url.set_username("").and_then(|()| url.set_password(None)).is_err() && has_user {
            return REDACTED.to_owned();
        }
        let mut shown = url.to_string();
        if has_user {
            shown = shown.replacen("://", &format!("://{REDACTED}@"), 1);
        }
        if has_query {
            shown.push('?');
            shown.push_str(REDACTED);
        }
        shown
    }
}

/// A URL that may be empty ("not set"); serialized like [`url`].
pub(super) mod url_or_nothing {
    use super::*;

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
        text::deserialize(from)
    }

    pub(crate) fn serialize<S: Serializer>(url: &Option<String>, to: S) -> Result<S::Ok, S::Error> {
        match url {
            Some(url) => super::url::serialize(url, to),
            None => to.serialize_str(""),
        }
    }
}

/// Address and port to listen on; empty means "do not listen".
pub(super) mod address {
    use std::net::SocketAddr;

    use super::*;

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
        let address = |text: String| {
            text.parse().map_err(|_| D::Error::custom(format!("{text:?} is not an address with a port")))
        };
        text::deserialize(from)?.map(address).transpose()
    }

    pub(crate) fn serialize<S: Serializer>(address: &Option<SocketAddr>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&address.map(|address| address.to_string()).unwrap_or_default())
    }
}

/// A secret, or a reference to one; empty means "not set".
pub(super) mod secret {
    use super::*;

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SecretString>, D::Error> {
        Ok(text::deserialize(from)?.map(SecretString::from))
    }

    pub(crate) fn serialize<S: Serializer>(secret: &Option<SecretString>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(if secret.is_some() { REDACTED } else { "" })
    }
}

/// Named secrets.
pub(super) mod secrets {
    use std::collections::BTreeMap;

    use super::*;

    pub(crate) fn serialize<S: Serializer>(secrets: &BTreeMap<String, SecretString>, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(secrets.keys().map(|name| (name, REDACTED)))
    }
}

/// A list, or one comma-separated text (as in environment variables).
pub(super) mod list {
    use super::*;

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum ListOrText {
        List(Vec<String>),
        Text(String),
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
        Ok(match ListOrText::deserialize(from)? {
            ListOrText::List(list) => list,
            ListOrText::Text(text) => {
                text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
            }
        })
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn urls_are_shown_without_user_and_query() {
        for (text, shown) in [
            ("http://h:8080/v1", "http://h:8080/v1"),
            ("https://user:hunter2@h/v1", "https://[redacted]@h/v1"),
            ("https://hunter2@h/", "https://[redacted]@h/"),
            ("https://h/v1?api_key=hunter2", "https://h/v1?[redacted]"),
            ("https://h/v1#hunter2", "https://h/v1"),
            ("h:pass@word", "[redacted]"),
            ("not a url", "not a url"),
        ] {
            assert_eq!(super::url::shown(text), shown);
        }
    }
}
