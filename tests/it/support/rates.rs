//! Random calls against the rate limits of an endpoint, and a check of the calls admitted.

use std::{cell::RefCell, time::Duration};

use proptest::{
    collection::vec,
    option,
    prelude::*,
    test_runner::{Config, TestRunner},
};

/// A call that asks for a slot in the rates.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    /// Seconds after the call before it.
    pub(crate) pause: f64,
    pub(crate) tokens: u64,
    pub(crate) patience: Duration,
}

/// Rates of one endpoint, and calls to it.
#[derive(Debug, Clone)]
pub(crate) struct Rates {
    /// Tokens per minute.
    pub(crate) tokens: u32,
    /// Requests per minute.
    pub(crate) requests: Option<u32>,
    pub(crate) asks: Vec<Ask>,
}

/// An admitted call, whose slot is between two times in seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Admitted {
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) tokens: u64,
}

/// Calls of a thousandth of a minute's tokens up to twice a minute's.
fn any_rates() -> impl Strategy<Value = Rates> {
    let thousandths = prop_oneof![1..100_u64, 100..2_000_u64];
    let pause = prop_oneof![0.0..3.0, 3.0..60.0];
    let patience = prop_oneof![Just(Duration::ZERO), Just(Duration::from_secs(3_600))];
    let asks = vec((thousandths, pause, patience), 2..40);
    (1_000..1_000_000_u32, option::of(2..60_u32), asks).prop_map(|(tokens, requests, asks)| {
        let ask = |(thousandths, pause, patience)| {
            let tokens = u64::from(tokens) * thousandths / 1_000;
            Ask { pause, tokens, patience }
        };
        Rates { tokens, requests, asks: asks.into_iter().map(ask).collect() }
    })
}

/// Lets calls of all sizes ask. Panics if a minute admits more than its requests, or more than its tokens and one
/// call.
pub(crate) fn check(cases: u32, ask: impl FnMut(Rates) -> Vec<Admitted>) {
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let ask = RefCell::new(ask);
    let checked = runner.run(&any_rates(), |rates| {
        let Rates { tokens, requests, .. } = rates;
        let admitted = (ask.borrow_mut())(rates);
        for (i, first) in admitted.iter().enumerate() {
            // Calls that are within a minute of the first for certain, wherever in its range each slot is.
            let minute: Vec<u64> =
                admitted[i..].iter().take_while(|one| one.to - first.from < 60.0).map(|one| one.tokens).collect();
            let before_last: u64 = minute.iter().rev().skip(1).sum();
            prop_assert!(before_last <= tokens.into(), "{minute:?} tokens within a minute of {first:?}: {admitted:?}");
            let most = requests.map_or(usize::MAX, |requests| requests as usize);
            prop_assert!(minute.len() <= most, "{minute:?} requests within a minute of {first:?}: {admitted:?}");
        }
        Ok(())
    });
    checked.unwrap();
}
