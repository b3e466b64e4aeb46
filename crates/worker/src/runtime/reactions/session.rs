//! The turn of a session that was locked when its execution ended.

use longhaul_store::{StoreError, ends::Subject};

use crate::deps::Deps;

pub(super) async fn pass_turn(deps: &Deps, ended: &Subject) -> Result<(), StoreError> {
    deps.publisher.runnable(deps.store.pass_turn(ended).await?.as_slice());
    Ok(())
}
