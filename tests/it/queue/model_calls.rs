//! Limits of a model endpoint, counted in Redis for the whole fleet, on a clock that the caller gives.

use std::time::Duration;

use futures::{FutureExt, future::join_all};
use longhaul_queue::{
    QueueOptions,
    model_calls::{AnsweredCalls, CallAsked, CallLimits, CallPlace, ModelCalls},
};
use longhaul_testkit::proxy::FaultProxy;
use uuid::Uuid;

use super::world::{command, options};
use crate::support::{
    rates::{self, Admitted, Rates},
    servers::dedicated_redis,
};

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
        uncounted: 0,
    }
}

#[tokio::test]
async fn request_rate_holds_over_two_processes() {
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
async fn token_rate_keeps_reserved_slots() {
    let redis = dedicated_redis().await;
    let calls = ModelCalls::new(&options(&redis)).unwrap();
    let limits = CallLimits { tokens: Some(6_000), ..CallLimits::default() };
    let take = async |execution, at, tokens| {
        let patience = Duration::from_secs(120);
        calls.take(CallAsked { tokens, patience, ..asked(execution, at) }, limits).await.unwrap()
    };
    // 600 tokens at once, then ninety a second. A larger call waits for a full burst.
    assert_eq!(take(1, 0.0, 600).await, FREE);
    let CallPlace::In(second) = take(2, 0.0, 900_000).await else { panic!() };
    assert_eq!(second.as_millis(), 6_667);
    // A call after one larger than a minute's tokens waits for a minute's worth.
    let CallPlace::In(third) = take(3, 0.0, 90).await else { panic!() };
    assert_eq!(third.as_millis(), 67_667);
    // A repeated request reserves no second slot.
    let CallPlace::In(again) = take(2, 1.0, 900_000).await else { panic!() };
    assert_eq!(again.as_millis(), 5_667);
    assert_eq!(take(2, 6.7, 900_000).await, CallPlace::Now { was_reserved: true });
    assert_eq!(take(3, 67.7, 90).await, CallPlace::Now { was_reserved: true });
    assert!(matches!(take(3, 67.7, 90).await, CallPlace::In(_)), "a place is used once");
    // A call whose slot would come after its patience reserves none.
    for execution in 10..30 {
        take(execution, 67.7, 600).await;
    }
    assert_eq!(take(99, 67.7, 600).await, CallPlace::TooLate);
}

#[tokio::test]
async fn large_calls_use_nearly_their_full_rate() {
    let redis = dedicated_redis().await;
    let calls = ModelCalls::new(&options(&redis)).unwrap();
    let limits = CallLimits { tokens: Some(30_000), ..CallLimits::default() };
    let mut went = 0;
    for second in 0..600_u32 {
        let asked = CallAsked { tokens: 20_000, ..asked(second.into(), second.into()) };
        went += u32::from(calls.take(asked, limits).await == Some(FREE));
    }
    // One per 45 seconds.
    assert_eq!(went, 14, "in ten minutes");
}

#[test]
fn random_calls_stay_within_their_rates() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let redis = runtime.block_on(dedicated_redis());
    let calls = ModelCalls::new(&options(&redis)).unwrap();
    let mut case = 0;
    rates::check(48, |Rates { tokens, requests, asks }| {
        case += 1;
        let endpoint = format!("e{case}");
        let limits = CallLimits { tokens: Some(tokens), requests, ..CallLimits::default() };
        let (mut at, mut admitted) = (0.0, Vec::new());
        for (execution, ask) in (0..).zip(asks) {
            at += ask.pause;
            let asked =
                CallAsked { endpoint: &endpoint, tokens: ask.tokens, patience: ask.patience, ..asked(execution, at) };
            let place = runtime.block_on(calls.take(asked, limits)).unwrap();
            match place {
                CallPlace::Now { .. } => admitted.push(Admitted { from: at, to: at, tokens: ask.tokens }),
                CallPlace::In(wait) => {
                    // Waits are rounded up to whole milliseconds.
                    let to = at + wait.as_secs_f64();
                    admitted.push(Admitted { from: to - 0.001, to, tokens: ask.tokens });
                }
                CallPlace::TooLate => {}
                other @ (CallPlace::Full | CallPlace::Shut(_) | CallPlace::Unlimited) => panic!("{other:?}"),
            }
        }
        admitted
    });
}

#[tokio::test]
async fn concurrent_calls_are_limited_until_ended_or_lost() {
    let redis = dedicated_redis().await;
    let calls = [ModelCalls::new(&options(&redis)).unwrap(), ModelCalls::new(&options(&redis)).unwrap()];
    let limits = CallLimits { at_once: Some(2), ..CallLimits::default() };
    let take = async |process: usize, execution, at| calls[process].take(asked(execution, at), limits).await.unwrap();
    assert_eq!((take(0, 1, 0.0).await, take(1, 2, 0.0).await), (FREE, FREE));
    assert_eq!(take(1, 3, 0.0).await, CallPlace::Full);
    assert!(calls[0].ended("e", NOW, &[asked(1, 0.0).counted()], &AnsweredCalls::default()).await);
    assert_eq!(take(1, 3, 0.0).await, FREE);
    assert_eq!(take(0, 4, 599.0).await, CallPlace::Full);
    // Two processes died with their calls.
    assert_eq!(take(0, 4, 601.0).await, FREE);
    // A lower limit stops no running call.
    let one = CallLimits { at_once: Some(1), ..CallLimits::default() };
    assert_eq!(calls[0].take(asked(5, 602.0), one).await, Some(CallPlace::Full));
    // Limits of another endpoint are separate.
    let other = CallAsked { endpoint: "other", ..asked(5, 602.0) };
    assert_eq!(calls[0].take(other, one).await, Some(FREE));
}

/// The slot of an ended attempt may be returned after the next attempt has already asked.
#[tokio::test]
async fn late_end_of_a_call_frees_no_later_call() {
    let redis = dedicated_redis().await;
    let calls = ModelCalls::new(&options(&redis)).unwrap();
    let limits = CallLimits { at_once: Some(2), ..CallLimits::default() };
    let (first, again, other) = (asked(1, 0.0), asked(1, 0.000_001), asked(2, 3.0));
    for call in [first, again, other] {
        assert_eq!(calls.take(call, limits).await, Some(FREE));
    }
    assert!(calls.ended("e", NOW, &[first.counted(), asked(9, 0.0).counted()], &AnsweredCalls::default()).await);
    assert_eq!(calls.take(asked(3, 3.0), limits).await, Some(CallPlace::Full));
    assert!(calls.ended("e", NOW, &[again.counted(), other.counted()], &AnsweredCalls::default()).await);
    assert_eq!(calls.take(asked(3, 3.0), limits).await, Some(FREE));
    assert_eq!(calls.take(asked(4, 3.0), limits).await, Some(FREE));
}

#[tokio::test]
async fn flushed_redis_starts_anew_and_down_gives_none() {
    let redis = dedicated_redis().await;
    let calls = ModelCalls::new(&options(&redis)).unwrap();
    let limits = CallLimits { requests: Some(10), at_once: Some(1), ..CallLimits::default() };
    assert_eq!(calls.take(asked(1, 0.0), limits).await, Some(FREE));
    assert_eq!(calls.take(asked(2, 0.0), limits).await, Some(CallPlace::Full));
    let _: String = command(&redis, &["FLUSHALL"]).await;
    assert_eq!(calls.take(asked(2, 0.0), limits).await, Some(FREE));
    drop(redis);
    assert_eq!(calls.take(asked(3, 0.0), limits).await, None);
    assert!(!calls.ended("e", NOW, &[asked(2, 0.0).counted()], &AnsweredCalls::default()).await);
}

/// The questions are pipelined; time in their own queue must not count as an outage.
#[tokio::test]
async fn thousand_questions_at_once_are_all_answered() {
    const QUESTIONS: u32 = 1_000;
    const PLACES: u32 = 400;
    let redis = dedicated_redis().await;
    let proxy = FaultProxy::before(redis.url()).await.unwrap();
    let through = QueueOptions::new(proxy.url_through(redis.url()).unwrap().into(), "test");
    let calls = ModelCalls::new(&through).unwrap();
    proxy.delay(Duration::from_millis(20));
    let limits = CallLimits { at_once: Some(PLACES), ..CallLimits::default() };
    let places = join_all((0..QUESTIONS).map(|one| calls.take(asked(one.into(), 0.0), limits))).await;
    let count = |wanted| places.iter().filter(|place| **place == wanted).count();
    assert_eq!(count(None), 0, "questions that were not answered");
    assert_eq!(count(Some(FREE)), PLACES as usize);
    assert_eq!(count(Some(CallPlace::Full)), (QUESTIONS - PLACES) as usize);
}

#[tokio::test]
async fn abandoned_question_keeps_the_connection() {
    let redis = dedicated_redis().await;
    let calls = ModelCalls::new(&options(&redis)).unwrap();
    let limits = CallLimits { at_once: Some(9), ..CallLimits::default() };
    assert_eq!(calls.take(asked(1, 0.0), limits).await, Some(FREE));
    let connections = async || -> usize {
        let info: String = command(&redis, &["INFO", "stats"]).await;
        let line = info.lines().find_map(|line| line.strip_prefix("total_connections_received:")).unwrap();
        line.trim().parse().unwrap()
    };
    let before = connections().await;
    for execution in 2..5 {
        assert!(calls.take(asked(execution, 0.0), limits).now_or_never().is_none(), "Redis is asked");
    }
    assert_eq!(calls.take(asked(5, 0.0), limits).await, Some(FREE));
    // The command that counts connections is a connection itself.
    assert_eq!(connections().await, before + 1);
}
