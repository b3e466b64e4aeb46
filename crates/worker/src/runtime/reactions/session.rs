//! The turn of a session that was locked when its execution ended.

use longhaul_store::{StoreError, ends::Subject};

use super::super::announce::announce;
use crate::deps::Deps;

pub(super) async fn pass_turn(deps: &Deps, ended: &Subject) -> Result<(), StoreError> {
    announce(deps, deps.store.pass_turn(ended).await?.as_slice());
    Ok(())
}
