//! Channels: endpoints in whose messages people decide on approvals (docs/design/webhooks.md).

use longhaul_domain::ApiKeyId;

use super::{EndpointKind, EndpointOf, endpoints::kind};
use crate::{Store, StoreError};

/// A channel as its buttons and links need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    pub of: EndpointOf,
    pub kind: EndpointKind,
    /// Address; that of a Slack channel is encrypted.
    pub url: String,
    /// Encrypted signing secret of a Slack channel.
    pub sealed_secret: Option<String>,
    /// Key with whose rights the people in the channel decide.
    pub key: ApiKeyId,
}

impl Store {
    /// The channel, if it is enabled.
    ///
    /// # Errors
    /// Postgres is unavailable, or the row cannot be read.
    pub async fn channel(&self, of: EndpointOf) -> Result<Option<Channel>, StoreError> {
        let row = sqlx::query!(
            r#"
            select kind, coalesce(sealed_url, url) as "url!", sealed_secret, key_id as "key_id!"
            from webhook_endpoints
            where id = $1 and tenant_id = $2 and (disabled_at is null or disabled_because = 'key_revoked')
                and key_id is not null
            "#,
            of.id,
            of.tenant.0,
        )
        .fetch_optional(&self.pool)
        .await?;
        row.map(|row| {
            Ok(Channel {
                of,
                kind: kind(&row.kind)?,
                url: row.url,
                sealed_secret: row.sealed_secret,
                key: ApiKeyId(row.key_id),
            })
        })
        .transpose()
    }
}
