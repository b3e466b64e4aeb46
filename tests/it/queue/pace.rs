//! Learned limits against providers that are computed, on a clock that the test moves: what is reached of what a
//! provider allows, and how many calls it refuses.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use longhaul_queue::model_calls::{
    AnsweredCalls, CallAsked, CallLimits, CallPlace, CallRoom, ModelCalls, RefusedCall, StatedLimit, StatedLimits,
};
use uuid::Uuid;

use super::world::options;
use crate::support::servers::dedicated_redis;

const NOW: f64 = 1_800_000_000.0;
/// Time that a call takes, and time until it is refused, in seconds.
const TAKES: f64 = 0.2;
const REFUSED_AFTER: f64 = 0.003;

/// A provider: what it allows at a time.
#[derive(Debug, Clone, Copy)]
enum Allows {
    /// Calls in each second, told by `Retry-After: 1`; a third of them in between.
    PerSecond { calls: u32, low: Option<(f64, f64)> },
    /// Calls at once, told by a 429 without a time.
    AtOnce(usize),
    /// Tokens a second, told by headers; each call uses 500, and is estimated to use 2,000.
    Tokens(f64),
    /// Everything but each fourth call, whatever the rate.
    ThreeOfFour,
}

struct Server {
    allows: Allows,
    second: i64,
    in_second: u32,
    running: usize,
    left: f64,
    filled: f64,
    asked: u32,
}

impl Server {
    fn accepts(&mut self, at: f64) -> bool {
        self.asked += 1;
        match self.allows {
            Allows::PerSecond { calls, low } => {
                if at.floor() as i64 != self.second {
                    (self.second, self.in_second) = (at.floor() as i64, 0);
                }
                let is_low = low.is_some_and(|(from, to)| (from..to).contains(&at));
                let most = if is_low { calls / 3 } else { calls };
                self.in_second += 1;
                self.in_second <= most
            }
            Allows::AtOnce(most) => self.running < most,
            Allows::Tokens(per_second) => {
                self.left = (self.left + (at - self.filled) * per_second).min(per_second);
                self.filled = at;
                let fits = self.left >= 500.0;
                if fits {
                    self.left -= 500.0;
                }
                fits
            }
            Allows::ThreeOfFour => !self.asked.is_multiple_of(4),
        }
    }

    fn stated(&self) -> StatedLimits {
        let Allows::Tokens(per_second) = self.allows else { return StatedLimits::default() };
        let reset = Duration::from_secs_f64(((per_second - self.left) / per_second).max(0.0));
        StatedLimits { requests: None, tokens: Some(StatedLimit { limit: per_second, remaining: self.left, reset }) }
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Ask,
    Ended { lost_at: u64 },
    Refused,
    Look,
}

struct Outcome {
    served: Vec<f64>,
    refused: usize,
}

impl Outcome {
    /// Calls per second from the first to the last served one, without the first two seconds.
    fn rate(&self) -> f64 {
        let from = self.served[0] + 2.0;
        let counted = self.served.iter().filter(|at| **at >= from).count();
        counted as f64 / (self.served.last().unwrap() - from)
    }

    fn refused_share(&self) -> f64 {
        self.refused as f64 / (self.refused + self.served.len()) as f64
    }
}

/// Lets so many executions call a provider once each, as a worker does: slowly at first, then with permission; those
/// that find no place wait in a line.
async fn play(allows: Allows, executions: u32) -> Outcome {
    let redis = dedicated_redis().await;
    let calls = ModelCalls::new(&options(&redis)).unwrap();
    let mut server = Server { allows, second: 0, in_second: 0, running: 0, left: 0.0, filled: 0.0, asked: 0 };
    if let Allows::Tokens(per_second) = allows {
        server.left = per_second;
    }
    let mut events: BinaryHeap<Reverse<(u64, u64, u32, Event)>> = BinaryHeap::new();
    let micros = |at: f64| (at * 1e6) as u64;
    let mut order = 0_u64;
    let mut add = |events: &mut BinaryHeap<_>, at: f64, who: u32, event: Event| {
        order += 1;
        events.push(Reverse((micros(at), order, who, event)));
    };
    // The rate doubles each quarter of a second until the first refusal.
    let (mut begins, mut next) = (0.0, 0.0);
    for who in 0..executions {
        add(&mut events, next, who, Event::Ask);
        next += 1.0 / (32.0 * f64::powf(2.0, (next - begins) / 0.25));
        begins = 0.0;
    }
    add(&mut events, 1.0, 0, Event::Look);
    let (mut line, mut outcome) = (Vec::<u32>::new(), Outcome { served: Vec::new(), refused: 0 });
    let (mut is_limited, mut uncounted, mut begun) = (false, 0_usize, Vec::<f64>::new());
    while let Some(Reverse((at, _, who, event))) = events.pop() {
        let at = at as f64 / 1e6;
        let execution = Uuid::from_u128(u128::from(who) + 1);
        match event {
            Event::Ask => {
                let asked = CallAsked {
                    endpoint: "e",
                    execution,
                    now: NOW + at,
                    tokens: 2_000,
                    lost_after: Duration::from_secs(600),
                    patience: Duration::from_secs(86_400),
                    uncounted: u32::try_from(uncounted).unwrap(),
                };
                let place = match is_limited {
                    true => calls.take(asked, CallLimits::default()).await.unwrap(),
                    false => CallPlace::Unlimited,
                };
                match place {
                    CallPlace::Now { .. } | CallPlace::Unlimited => {
                        begun.push(at);
                        if server.accepts(at) {
                            server.running += 1;
                            uncounted += usize::from(!is_limited);
                            add(&mut events, at + TAKES, who, Event::Ended { lost_at: micros(at) });
                        } else {
                            add(&mut events, at + REFUSED_AFTER, who, Event::Refused);
                        }
                    }
                    CallPlace::In(wait) | CallPlace::Shut(wait) => {
                        add(&mut events, at + wait.as_secs_f64(), who, Event::Ask);
                    }
                    CallPlace::Full => line.push(who),
                    CallPlace::TooLate => panic!("too late"),
                }
            }
            Event::Ended { lost_at } => {
                server.running -= 1;
                uncounted = uncounted.saturating_sub(1);
                outcome.served.push(at);
                let stated = server.stated();
                is_limited |= stated.is_low();
                let answered = AnsweredCalls { count: 1, estimated: 2_000, used: 500, stated };
                let began = lost_at as f64 / 1e6;
                let asked = CallAsked {
                    endpoint: "e",
                    execution,
                    now: NOW + began,
                    tokens: 0,
                    lost_after: Duration::from_secs(600),
                    patience: Duration::ZERO,
                    uncounted: 0,
                };
                if is_limited {
                    assert!(calls.ended("e", NOW + at, &[asked.counted()], &answered).await);
                }
                if !line.is_empty() {
                    add(&mut events, at, line.remove(0), Event::Ask);
                }
            }
            Event::Refused => {
                outcome.refused += 1;
                let stated = matches!(allows, Allows::PerSecond { .. } | Allows::ThreeOfFour);
                let refused = RefusedCall {
                    endpoint: "e",
                    execution,
                    now: NOW + at,
                    is_rate: stated || server.stated().spent_for().is_some(),
                    wait: if stated { Duration::from_secs(1) } else { Duration::ZERO },
                    in_flight: u32::try_from(if is_limited { uncounted } else { server.running }).unwrap(),
                    begun: if is_limited { 0 } else { begun.iter().filter(|begun| at - **begun < 1.0).count() as u32 },
                };
                calls.refused(refused).await.unwrap();
                is_limited = true;
                add(&mut events, at, who, Event::Ask);
            }
            Event::Look => {
                let CallRoom { calls: room, .. } = calls.room("e", NOW + at, None, !line.is_empty()).await.unwrap();
                for who in line.drain(..line.len().min(room as usize)) {
                    add(&mut events, at, who, Event::Ask);
                }
                if outcome.served.len() < executions as usize {
                    add(&mut events, at + 1.0, 0, Event::Look);
                }
            }
        }
        assert!(at < 1_000.0, "{} of {executions} served", outcome.served.len());
    }
    assert_eq!(outcome.served.len(), executions as usize);
    outcome
}

async fn reaches(allows: Allows, executions: u32, allowed: f64, (least, most_refused): (f64, f64)) {
    let outcome = play(allows, executions).await;
    let (rate, refused) = (outcome.rate() / allowed, outcome.refused_share());
    let shown = format!("{allows:?}: {rate:.3} of what is allowed, {refused:.3} refused");
    println!("{shown}");
    assert!(rate >= least && refused <= most_refused, "{shown}");
}

#[tokio::test]
async fn rate_is_learned_from_refusals() {
    reaches(Allows::PerSecond { calls: 50, low: None }, 1_500, 50.0, (0.92, 0.05)).await;
}

#[tokio::test]
async fn concurrency_is_learned_from_refusals() {
    reaches(Allows::AtOnce(20), 1_500, 100.0, (0.95, 0.05)).await;
}

#[tokio::test]
async fn token_rate_is_learned_from_headers() {
    reaches(Allows::Tokens(25_000.0), 1_500, 50.0, (0.95, 0.05)).await;
}

#[tokio::test]
async fn falling_and_rising_limit_is_followed() {
    let allows = Allows::PerSecond { calls: 50, low: Some((10.0, 30.0)) };
    let outcome = play(allows, 3_000).await;
    let ends = *outcome.served.last().unwrap();
    let allowed = 50.0 * (ends - 22.0) + 16.0 * 20.0;
    let (reached, refused) = ((outcome.served.len() as f64) / allowed, outcome.refused_share());
    println!("{reached:.3} of what is allowed, {refused:.3} refused");
    assert!(reached >= 0.9 && refused <= 0.1, "{reached:.3} of what is allowed, {refused:.3} refused");
}

#[tokio::test]
async fn refusals_at_any_rate_do_not_slow_the_fleet() {
    let outcome = play(Allows::ThreeOfFour, 3_000).await;
    let rate = outcome.rate();
    println!("{rate} a second");
    assert!(rate > 40.0, "{rate} a second");
}
