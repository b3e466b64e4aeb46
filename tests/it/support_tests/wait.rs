//! Tests of `eventually` and `within`.

use std::time::Duration;

use futures::FutureExt;

use crate::support::wait::{SOON, eventually, within};

#[tokio::test]
async fn condition_is_polled_until_it_holds() {
    let mut looks = 0;
    let value = eventually("the third look", SOON, async || {
        looks += 1;
        if looks == 3 { Ok(looks) } else { Err(format!("{looks} looks")) }
    })
    .await;
    assert_eq!(value, 3);
}

#[tokio::test]
async fn unmet_condition_fails_with_its_last_state() {
    let waiting = eventually("the impossible", Duration::from_millis(30), async || Err::<(), _>("three of four done"));
    let panic = std::panic::AssertUnwindSafe(waiting).catch_unwind().await.unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.contains("the impossible") && text.contains("three of four done"), "{text}");
}

#[tokio::test]
async fn hanging_condition_fails_too() {
    let waiting =
        eventually("an answer", Duration::from_millis(30), async || std::future::pending::<Result<(), &str>>().await);
    assert!(std::panic::AssertUnwindSafe(waiting).catch_unwind().await.is_err());
}

#[tokio::test]
async fn slow_future_fails_with_its_name() {
    let waiting = within("the slow one", Duration::from_millis(30), std::future::pending::<()>());
    let panic = std::panic::AssertUnwindSafe(waiting).catch_unwind().await.unwrap_err();
    assert!(panic.downcast_ref::<String>().unwrap().contains("the slow one"));
}
