//! What a model endpoint may be asked, counted in Redis for the whole fleet, on a clock that the caller gives.

use std::time::Duration;

use longhaul_shared::queue::model_calls::{CallAsked, CallLimits, CallPlace, ModelCalls};
use uuid::Uuid;

use super::world::{command, options};
use crate::support::servers::dedicated_redis;

const NOW: f64 = 1_800_000_000.0;
const FREE: CallPlace = CallPlace::Now { was_reserved: false };

fn asked(execution: u128, at: f64) -> CallAsked<'static> {
    CallAsked {
        endpoint: "e",
        execution: Uuid::from_u128(execution),
        now: NOW + at,
        tokens: 0,
        lost_after: Duration::from_secs(600),
        patience: Duration::ZERO,
    }
}

#[tokio::test]
async fn no_minute_sees_more_requests_than_its_rate_over_two_processes() {
    let redis = dedicated_redis().await;
    let processes = [ModelCalls::new(&options(&redis)).unwrap(), ModelCalls::new(&options(&redis)).unwrap()];
    let limits = CallLimits { requests: Some(60), ..CallLimits::default() };
    let mut taken: Vec<f64> = Vec::new();
    for step in 0..900_u32 {
        let at = f64::from(step) * 0.2;
        let place = processes[step as usize % 2].take(asked(step.into(), at), limits).await;
        match place.unwrap() {
            CallPlace::Now { was_reserved: false } => taken.push(at),
            CallPlace::TooLate => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(taken.iter().filter(|at| **at < 1.0).count(), 5, "a tenth of it at once, as fast as they are asked for");
    for from in &taken {
        let minute = taken.iter().filter(|at| (*from..*from + 60.0).contains(*at)).count();
        assert!(minute <= 60, "{minute} from {from}");
    }
    assert!(taken.len() >= 160, "{} of about 168 in three minutes", taken.len());
}

#[tokio::test]
async fn tokens_are_counted_and_a_place_that_is_reserved_is_kept() {
    let redis = dedicated_redis().await;
    let calls = ModelCalls::new(&options(&redis)).unwrap();
    let limits = CallLimits { tokens: Some(6_000), ..CallLimits::default() };
    let take = async |execution, at, tokens| {
        let patience = Duration::from_secs(60);
        calls.take(CallAsked { tokens, patience, ..asked(execution, at) }, limits).await.unwrap()
    };
    // 600 tokens at once, then ninety a second; one larger than what comes at once is counted as that.
    assert_eq!(take(1, 0.0, 600).await, FREE);
    let CallPlace::In(second) = take(2, 0.0, 900_000).await else { panic!() };
    assert_eq!(second.as_millis(), 6_667);
    let CallPlace::In(third) = take(3, 0.0, 90).await else { panic!() };
    assert_eq!(third.as_millis(), 7_667);
    // Asking again is no second place.
    let CallPlace::In(again) = take(2, 1.0, 900_000).await else { panic!() };
    assert_eq!(again.as_millis(), 5_667);
    assert_eq!(take(2, 6.7, 900_000).await, CallPlace::Now { was_reserved: true });
    assert_eq!(take(3, 7.7, 90).await, CallPlace::Now { was_reserved: true });
    assert!(matches!(take(3, 7.7, 90).await, CallPlace::In(_)), "a place is used once");
    // What would come later than its patience takes none.
    for execution in 10..20 {
        take(execution, 7.7, 600).await;
    }
    assert_eq!(take(99, 7.7, 600).await, CallPlace::TooLate);
}

#[tokio::test]
async fn calls_under_way_are_limited_until_they_end_or_are_lost() {
    let redis = dedicated_redis().await;
    let calls = [ModelCalls::new(&options(&redis)).unwrap(), ModelCalls::new(&options(&redis)).unwrap()];
    let limits = CallLimits { at_once: Some(2), ..CallLimits::default() };
    let take = async |process: usize, execution, at| calls[process].take(asked(execution, at), limits).await.unwrap();
    assert_eq!((take(0, 1, 0.0).await, take(1, 2, 0.0).await), (FREE, FREE));
    assert_eq!(take(1, 3, 0.0).await, CallPlace::Full);
    assert!(calls[0].ended("e", &[asked(1, 0.0).counted()]).await);
    assert_eq!(take(1, 3, 0.0).await, FREE);
    assert_eq!(take(0, 4, 599.0).await, CallPlace::Full);
    // Two processes died with their calls.
    assert_eq!(take(0, 4, 601.0).await, FREE);
    // A lower limit stops nothing that runs.
    let one = CallLimits { at_once: Some(1), ..CallLimits::default() };
    assert_eq!(calls[0].take(asked(5, 602.0), one).await, Some(CallPlace::Full));
    // Another endpoint is another matter.
    let other = CallAsked { endpoint: "other", ..asked(5, 602.0) };
    assert_eq!(calls[0].take(other, one).await, Some(FREE));
}

/// What an attempt left behind is given back when the next one may long be asking again.
#[tokio::test]
async fn the_end_of_a_call_that_is_told_late_ends_no_later_call_of_its_execution() {
    let redis = dedicated_redis().await;
    let calls = ModelCalls::new(&options(&redis)).unwrap();
    let limits = CallLimits { at_once: Some(2), ..CallLimits::default() };
    let (first, again, other) = (asked(1, 0.0), asked(1, 0.000_001), asked(2, 3.0));
    for call in [first, again, other] {
        assert_eq!(calls.take(call, limits).await, Some(FREE));
    }
    assert!(calls.ended("e", &[first.counted(), asked(9, 0.0).counted()]).await);
    assert_eq!(calls.take(asked(3, 3.0), limits).await, Some(CallPlace::Full));
    assert!(calls.ended("e", &[again.counted(), other.counted()]).await);
    assert_eq!(calls.take(asked(3, 3.0), limits).await, Some(FREE));
    assert_eq!(calls.take(asked(4, 3.0), limits).await, Some(FREE));
}

#[tokio::test]
async fn an_emptied_redis_starts_anew_and_one_that_is_away_says_nothing() {
    let redis = dedicated_redis().await;
    let calls = ModelCalls::new(&options(&redis)).unwrap();
    let limits = CallLimits { requests: Some(10), at_once: Some(1), ..CallLimits::default() };
    assert_eq!(calls.take(asked(1, 0.0), limits).await, Some(FREE));
    assert_eq!(calls.take(asked(2, 0.0), limits).await, Some(CallPlace::Full));
    let _: String = command(&redis, &["FLUSHALL"]).await;
    assert_eq!(calls.take(asked(2, 0.0), limits).await, Some(FREE));
    drop(redis);
    assert_eq!(calls.take(asked(3, 0.0), limits).await, None);
    assert!(!calls.ended("e", &[asked(2, 0.0).counted()]).await);
}
