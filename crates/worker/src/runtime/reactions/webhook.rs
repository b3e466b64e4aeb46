//! What the webhooks and channels of a tenant are told.

use longhaul_store::{StoreError, ends::Subject};

use crate::deps::Deps;

pub(super) async fn tell(deps: &Deps, tenant: &Subject) -> Result<(), StoreError> {
    deps.store.tell_webhooks(tenant).await
}
