//! `[email]`: the mail server of e-mail channels.

use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::{ConfigError, Rules, secret::reveal, units};

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct EmailConfig {
    /// URL of the SMTP server. `None`: no mail is sent.
    #[serde(with = "units::secret")]
    pub smtp_url: Option<SecretString>,
    /// Sender.
    #[serde(with = "units::text")]
    pub from: Option<String>,
    /// URL of the API as recipients reach it.
    #[serde(with = "units::url_or_nothing")]
    pub link_url: Option<String>,
}

/// Settings of mail that is sent.
#[derive(Debug, Clone)]
pub struct EmailOptions {
    pub smtp_url: SecretString,
    pub from: String,
    pub link_url: String,
}

impl EmailConfig {
    /// `None`: no mail is sent.
    ///
    /// # Errors
    /// [`ConfigError::Reference`] if the URL refers to a variable that is not set.
    pub fn options(&self) -> Result<Option<EmailOptions>, ConfigError> {
        let (Some(url), Some(from), Some(link_url)) = (&self.smtp_url, &self.from, &self.link_url) else {
            return Ok(None);
        };
        Ok(Some(EmailOptions { smtp_url: reveal(url)?, from: from.clone(), link_url: link_url.clone() }))
    }

    pub(super) fn check(&self, rules: &mut Rules) {
        let set = [self.smtp_url.is_some(), self.from.is_some(), self.link_url.is_some()];
        let is_uniform = set == [true; 3] || set == [false; 3];
        rules.require(is_uniform, "email.smtp_url, email.from and email.link_url must be set together");
        if let Some(link_url) = &self.link_url {
            let is_url = url::Url::parse(link_url).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
            rules.require(is_url, "email.link_url must be an http or https URL");
        }
    }
}
