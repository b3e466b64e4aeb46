//! `[client]`: the API that the client commands talk to.

use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::{Rules, units};

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct ClientConfig {
    #[serde(serialize_with = "units::url::serialize")]
    pub url: String,
    #[serde(with = "units::secret")]
    pub api_key: Option<SecretString>,
}

impl ClientConfig {
    pub(super) fn check(&self, rules: &mut Rules) {
        let url = url::Url::parse(&self.url);
        rules.require(
            url.is_ok_and(|url| matches!(url.scheme(), "http" | "https")),
            "client.url must be an http or https URL",
        );
    }
}
