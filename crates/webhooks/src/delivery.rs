//! One attempt, and its means: the store, the connections and the places that the lanes of a process share.

use std::time::Duration;

use longhaul_domain::TenantId;
use longhaul_fairness::FairShare;
use longhaul_guards::guarded_client::GuardedClient;
use longhaul_guards::sealing::Sealer;
use longhaul_store::{
    Store, StoreError,
    tenants::api_keys::Pepper,
    webhooks::{Due, EndpointKind, EndpointOf, Lane, Outcome, Settled},
};
use secrecy::ExposeSecret;
use tokio_util::sync::CancellationToken;

use crate::{
    attempt::{self, settled},
    email::{Mailer, Post},
    message::Message,
    slack,
};

/// Attempts of one process at a time, and further ones for tenants that have none under way.
const MAX_ATTEMPTS: u64 = 512;
const KEPT_ATTEMPTS: u64 = 51;
/// Statements of all lanes and of tidying at a time: each takes one of the few connections of the API's pool.
const MAX_STATEMENTS: u64 = 2;

#[derive(Debug, Clone, Copy)]
pub struct WebhookOptions {
    /// True if endpoints may have private addresses.
    pub allow_private: bool,
    /// Limit of one attempt.
    pub timeout: Duration,
    /// Time without a success after which an endpoint is disabled.
    pub patience: Duration,
    /// Attempts of one endpoint at a time, once one was delivered.
    pub at_once: usize,
}

/// Keys and connections of channels. By default nothing can be sent to one.
#[derive(Debug, Clone, Default)]
pub struct Channels {
    /// Opens the URLs of Slack channels.
    pub sealer: Sealer,
    /// `None`: no mail is sent.
    pub mailer: Option<Mailer>,
}

pub(crate) struct Delivery {
    pub(crate) store: Store,
    pub(crate) pepper: Pepper,
    client: GuardedClient,
    pub(crate) options: WebhookOptions,
    channels: Channels,
    /// Places for attempts.
    pub(crate) attempts: FairShare<TenantId>,
    /// Places for statements.
    statements: FairShare<TenantId>,
    pub(crate) shutdown: CancellationToken,
}

impl Delivery {
    /// # Errors
    /// The machine's TLS roots cannot be read; as a message.
    pub(crate) fn new(
        store: Store,
        pepper: Pepper,
        options: WebhookOptions,
        channels: Channels,
        shutdown: CancellationToken,
    ) -> Result<Self, String> {
        Ok(Self {
            store,
            pepper,
            client: GuardedClient::new(options.allow_private)?,
            options,
            channels,
            attempts: FairShare::new(MAX_ATTEMPTS).keeping(KEPT_ATTEMPTS),
            statements: FairShare::new(MAX_STATEMENTS),
            shutdown,
        })
    }

    /// Runs a statement for a tenant, when it has a place.
    pub(crate) async fn on_store<T>(
        &self,
        tenant: TenantId,
        statement: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let _place = self.statements.take(tenant, 1).await;
        self.store.trouble().on_one_server(statement).await
    }

    pub(crate) async fn attempt(&self, lane: &Lane, secrets: &[Vec<u8>], due: &Due) -> Settled {
        if lane.kind == EndpointKind::Standard {
            return attempt::attempt(&self.client, &lane.url, secrets, due, self.options.timeout).await;
        }
        match Message::of(&self.store, lane.tenant, due).await {
            Ok(Some(message)) if lane.kind == EndpointKind::Email => self.mail(lane, &message, due).await,
            Ok(Some(message)) => self.post(lane, &message, due).await,
            Ok(None) => settled(due, Outcome::Delivered, None),
            // If Postgres is away, this is not stored either, and the delivery stays due.
            Err(error) => settled(due, Outcome::Refused, Some(format!("its text cannot be read: {}", error.summary()))),
        }
    }

    async fn post(&self, lane: &Lane, message: &Message, due: &Due) -> Settled {
        match self.channels.sealer.open(&lane.url) {
            Ok(url) => {
                let message = slack::post(message, &self.pepper, channel(lane));
                attempt::post(&self.client, url.expose_secret(), &message, due, self.options.timeout).await
            }
            Err(error) => settled(due, Outcome::Away, Some(error.to_string())),
        }
    }

    async fn mail(&self, lane: &Lane, message: &Message, due: &Due) -> Settled {
        let Some(mailer) = &self.channels.mailer else {
            return settled(due, Outcome::Away, Some("this installation sends no mail (email.smtp_url)".into()));
        };
        let post = Post { url: &lane.url, delivery: due.id, channel: channel(lane), pepper: &self.pepper };
        let (outcome, error) = mailer.send(message, &post, self.options.timeout).await;
        settled(due, outcome, error)
    }
}

fn channel(lane: &Lane) -> EndpointOf {
    EndpointOf { tenant: lane.tenant, id: lane.endpoint }
}
