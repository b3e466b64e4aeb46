//! A name that a later release stored: its row cannot be read, and others can.

use longhaul_store::StoreError;

use crate::support::leases::World;

#[tokio::test]
async fn unknown_wait_reason_fails_only_its_execution() {
    let world = World::create().await;
    let ids = world.submit(2).await;
    sqlx::query("alter table executions drop constraint executions_wait_reason_check")
        .execute(world.pool())
        .await
        .unwrap();
    sqlx::query("update executions set wait_reason = 'eclipse' where id = $1")
        .bind(ids[0].0)
        .execute(world.pool())
        .await
        .unwrap();
    let reach = world.tenant.into();
    let unread = world.store.get_execution(&reach, ids[0]).await;
    assert!(matches!(unread, Err(StoreError::Corrupt(_))), "{unread:?}");
    let unread = world.store.explain_waiting(&reach, ids[0]).await;
    assert!(matches!(unread, Err(StoreError::Corrupt(_))), "{unread:?}");
    assert!(world.store.get_execution(&reach, ids[1]).await.unwrap().is_some());
}
