//! Messages by e-mail: plain text, so that nothing in them is markup, and a link in each approval to a page that asks
//! once more (docs/design/webhooks.md).

use std::{fmt, time::Duration};

use futures::future::join_all;
use lettre::{
    Address, AsyncSmtpTransport, AsyncTransport, Message as Mail, Tokio1Executor,
    message::{
        Mailbox,
        header::{ContentType, HeaderName, HeaderValue},
    },
    transport::smtp::Error as SmtpError,
};
use longhaul_domain::cut;
use longhaul_shared::tls::install_tls_provider;
use longhaul_shared::visible::{line, visible};
use longhaul_store::{
    tenants::api_keys::Pepper,
    webhooks::{EndpointOf, Outcome},
};
use secrecy::{ExposeSecret, SecretString};
use tokio::time::timeout;
use uuid::Uuid;

use crate::{
    message::Message,
    ticket::{Right, Ticket},
};

/// Recipients of one channel.
pub const MAX_RECIPIENTS: usize = 10;
const SCHEME: &str = "mailto:";
/// Longest body of a message and longest subject, in bytes.
const BODY_BYTES: usize = 8_000;
const SUBJECT_BYTES: usize = 150;

/// Sends mail through one SMTP server. Cheap to clone.
#[derive(Clone)]
pub struct Mailer {
    transport: AsyncSmtpTransport<Tokio1Executor>,
    from: Mailbox,
    /// Address of the API as recipients reach it.
    links: String,
}

impl fmt::Debug for Mailer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mailer({})", self.from)
    }
}

impl Mailer {
    /// `url` is `smtps://user:password@host` or `smtp://…?tls=required`; `links` is the URL of the API.
    ///
    /// # Errors
    /// `url` or `from` cannot be read; as a message without the password.
    pub fn new(url: &SecretString, from: &str, links: &str) -> Result<Self, String> {
        install_tls_provider();
        let transport = AsyncSmtpTransport::<Tokio1Executor>::from_url(url.expose_secret())
            .map_err(|_| "email.smtp_url is no URL of an SMTP server".to_owned())?;
        let from = from.parse::<Mailbox>().map_err(|error| format!("email.from is no address: {error}"))?;
        Ok(Self { transport: transport.build(), from, links: links.trim_end_matches('/').to_owned() })
    }

    /// Sends a message to each recipient in `url`, each within `limit`, and with a link of its own. The worst outcome
    /// counts; what is sent again has the same id, by which mailboxes know it.
    pub(crate) async fn send(&self, message: &Message, post: &Post<'_>, limit: Duration) -> (Outcome, Option<String>) {
        let recipients = match recipients(post.url) {
            Ok(recipients) => recipients,
            Err(error) => return (Outcome::Refused, Some(error)),
        };
        let sent = join_all(recipients.into_iter().map(|to| self.send_one(message, post, to, limit))).await;
        let failures = sent.into_iter().filter_map(Result::err);
        let worst = failures.max_by_key(|(outcome, _)| *outcome == Outcome::Away);
        worst.map_or((Outcome::Delivered, None), |(outcome, error)| (outcome, Some(error)))
    }

    async fn send_one(
        &self,
        message: &Message,
        post: &Post<'_>,
        to: Address,
        limit: Duration,
    ) -> Result<(), (Outcome, String)> {
        let mail = self.mail(message, post, to).map_err(|error| (Outcome::Refused, error))?;
        match timeout(limit, self.transport.send(mail)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(judge(&error)),
            Err(_) => Err((Outcome::Away, format!("the mail server took more than {} s", limit.as_secs_f64()))),
        }
    }

    fn mail(&self, message: &Message, post: &Post<'_>, to: Address) -> Result<Mail, String> {
        let about = message.facts.iter().take(2).map(|(name, fact)| format!("{name} {}", line(fact)));
        let subject = [message.title.to_owned()].into_iter().chain(about).collect::<Vec<_>>().join(", ");
        let id = format!("<{}.{to}>", post.delivery);
        let body = self.body(message, post, &to);
        let mut mail = Mail::builder()
            .from(self.from.clone())
            .to(Mailbox::new(None, to))
            .subject(cut(&subject, SUBJECT_BYTES))
            .message_id(Some(id))
            .header(ContentType::TEXT_PLAIN)
            .body(body)
            .map_err(|error| format!("the message cannot be written: {error}"))?;
        // So that no machine answers it (RFC 3834).
        let name = HeaderName::new_from_ascii_str("Auto-Submitted");
        mail.headers_mut().insert_raw(HeaderValue::new(name, "auto-generated".to_owned()));
        Ok(mail)
    }

    fn body(&self, message: &Message, post: &Post<'_>, to: &Address) -> String {
        let mut text = format!("{}\n\n", message.title);
        for (name, fact) in &message.facts {
            text.push_str(&format!("{name}: {}\n", cut(&line(fact), 1_000)));
        }
        if let Some(body) = &message.body {
            let shown: String = visible(body).collect();
            text.push_str(&format!("\n{}\n", cut(&shown, BODY_BYTES)));
        }
        if let Some(note) = &message.note {
            text.push_str(&format!("\n{note}\n"));
        }
        if let Some(request) = &message.asks {
            let ticket = Ticket::of(post.channel, request, Right::Decide(to.to_string())).sign(post.pepper);
            text.push_str("\nTo approve or reject it, open this link, which is yours alone. Do not forward it.\n");
            text.push_str(&format!("{}/v1/channels/email/{ticket}\n", self.links));
        }
        text
    }
}

/// The parts of an e-mail besides its message.
pub(crate) struct Post<'a> {
    /// `mailto:` URL of the channel.
    pub(crate) url: &'a str,
    pub(crate) delivery: Uuid,
    pub(crate) channel: EndpointOf,
    pub(crate) pepper: &'a Pepper,
}

fn judge(error: &SmtpError) -> (Outcome, String) {
    let outcome = if error.is_permanent() { Outcome::Refused } else { Outcome::Away };
    (outcome, cut(&format!("the mail server: {error}"), 300).into_owned())
}

/// The recipients of a URL such as `mailto:a@example.org,b@example.org`.
///
/// # Errors
/// It is none, or has more than [`MAX_RECIPIENTS`].
pub fn recipients(url: &str) -> Result<Vec<Address>, String> {
    let list = url.strip_prefix(SCHEME).ok_or("must be `mailto:` and addresses with `,` between them")?;
    // Other characters would have to be encoded in the URL.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "@.+-_=,".contains(c);
    if let Some(other) = list.chars().find(|c| !is_plain(*c)) {
        return Err(format!("has the character {other:?}, which no address may have here"));
    }
    let read =
        |text: &str| text.parse::<Address>().map_err(|error| format!("has `{text}`, which is no address: {error}"));
    let recipients: Vec<Address> = list.split(',').map(read).collect::<Result<_, _>>()?;
    if recipients.len() > MAX_RECIPIENTS {
        return Err(format!("has more than {MAX_RECIPIENTS} recipients"));
    }
    Ok(recipients)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipients_are_addresses_alone() {
        let read = |url: &str| recipients(url).map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(read("mailto:a+b@example.org,c@example.org").unwrap(), ["a+b@example.org", "c@example.org"]);
        let many = format!("mailto:{}", ["a@example.org"; 11].join(","));
        let refused = [
            "mailto:",
            "a@example.org",
            "mailto:a",
            "mailto:a@b\r\nBcc: c@d",
            "mailto:a@b?bcc=c@d",
            "mailto:a@b,",
            &many,
        ];
        for url in refused {
            assert!(read(url).is_err(), "{url}");
        }
    }

    #[test]
    fn passwords_are_in_no_message() {
        let error = Mailer::new(&"smtp2://user:hunter2@host".into(), "a@example.org", "").unwrap_err();
        assert!(!error.contains("hunter2"), "{error}");
    }
}
