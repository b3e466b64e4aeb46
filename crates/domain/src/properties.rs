//! Property tests of retry policies, series of failures and the state machine.

use std::time::Duration;

use longhaul_sdk::{failure::FailureClass, spec::RetrySpec};
use proptest::{collection::vec, option, prelude::*, sample::select};

use super::{ExecutionStatus, RetryCounters, RetryPolicy, retry::MAX_RETRY_AFTER, status::Transition};

fn any_spec() -> impl Strategy<Value = RetrySpec> {
    let delays = || option::of(vec(0..100_000_u32, 0..4));
    (delays(), delays(), delays(), option::of(0..8_u32), option::of(-1.0..2.0_f64)).prop_map(
        |(transient, tool_error, llm_error, max_total, jitter)| RetrySpec {
            transient_delays_seconds: transient,
            tool_error_delays_seconds: tool_error,
            llm_error_delays_seconds: llm_error,
            max_total,
            jitter,
            ..RetrySpec::default()
        },
    )
}

fn any_class() -> impl Strategy<Value = FailureClass> {
    select(FailureClass::ALL.to_vec())
}

/// Delays of a class as documented: the definition's own, or the default.
fn series(spec: &RetrySpec, class: FailureClass) -> Vec<u32> {
    let or = |own: &Option<Vec<u32>>, default: &[u32]| own.clone().unwrap_or_else(|| default.to_vec());
    match class {
        FailureClass::Transient => or(&spec.transient_delays_seconds, &[10, 30, 90]),
        FailureClass::ToolError => or(&spec.tool_error_delays_seconds, &[10, 30]),
        FailureClass::LlmError => or(&spec.llm_error_delays_seconds, &[10]),
        FailureClass::ContextLimit | FailureClass::Permanent | FailureClass::HumanRejected => Vec::new(),
    }
}

fn counter(had: &mut RetryCounters, class: FailureClass) -> Option<&mut u32> {
    match class {
        FailureClass::Transient => Some(&mut had.transient),
        FailureClass::ToolError => Some(&mut had.tool_error),
        FailureClass::LlmError => Some(&mut had.llm_error),
        FailureClass::ContextLimit | FailureClass::Permanent | FailureClass::HumanRejected => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn failures_use_each_class_delay_in_order(
        spec in any_spec(),
        failures in vec(any_class(), 0..16),
    ) {
        let spec = RetrySpec { jitter: None, ..spec };
        let policy = RetryPolicy::from(&spec);
        let mut had = RetryCounters::default();
        for class in failures {
            let nth = counter(&mut had, class).map_or(0, |n| *n as usize);
            let next = series(&spec, class).get(nth).copied().filter(|_| had.total() < spec.max_total.unwrap_or(5));
            // Exact to the nanosecond: without jitter the delay is not spread.
            let delay = policy.delay(class, had, None, 0.7);
            prop_assert_eq!(delay, next.map(|seconds| Duration::from_secs(seconds.into())));
            if delay.is_none() {
                break;
            }
            *counter(&mut had, class).unwrap() += 1;
        }
        prop_assert!(had.total() <= spec.max_total.unwrap_or(5));
    }

    #[test]
    fn retry_after_changes_only_the_delay(
        spec in any_spec(),
        had in (0..4_u32, 0..4_u32, 0..4_u32),
        class in any_class(),
        seconds in 0..1_000_000_u64,
        chance in 0.0..1.0_f64,
    ) {
        let policy = RetryPolicy::from(&spec);
        let had = RetryCounters { transient: had.0, tool_error: had.1, llm_error: had.2 };
        let asked = Duration::from_secs(seconds);
        let plain = policy.delay(class, had, None, chance);
        let told = policy.delay(class, had, Some(asked), chance);
        prop_assert_eq!(told, plain.map(|delay| delay.max(asked.min(MAX_RETRY_AFTER))));
    }

    #[test]
    fn jitter_only_lengthens_the_delay(
        spec in any_spec(),
        class in any_class(),
        chance in 0.0..1.0_f64,
    ) {
        let policy = RetryPolicy::from(&spec);
        let exact = RetryPolicy::from(&RetrySpec { jitter: None, ..spec.clone() });
        let delay = |policy: &RetryPolicy| policy.delay(class, RetryCounters::default(), None, chance);
        prop_assert_eq!(delay(&policy).is_some(), delay(&exact).is_some());
        if let (Some(spread), Some(exact)) = (delay(&policy), delay(&exact)) {
            let most = 1.0 + spec.jitter.unwrap_or(0.0).clamp(0.0, 1.0);
            prop_assert!(spread >= exact && spread <= exact.mul_f64(most) + Duration::from_micros(1));
        }
    }

    #[test]
    fn status_moves_rightwards_and_ends_once(
        transitions in vec(select(Transition::ALL.to_vec()), 0..40),
    ) {
        let mut status = ExecutionStatus::Pending;
        let (mut claims, mut ends) = (0, 0);
        for transition in transitions {
            let Ok(next) = status.next(transition) else {
                // A refused transition changes nothing. Only terminal and never-claimed executions refuse one.
                prop_assert!(status.is_terminal() || status == ExecutionStatus::Pending);
                continue;
            };
            prop_assert!(next >= status);
            claims += u32::from(transition == Transition::Claim);
            ends += u32::from(next.is_terminal());
            prop_assert_eq!(next.is_terminal(), matches!(transition, Transition::Finish | Transition::Fail));
            prop_assert!(next == ExecutionStatus::Pending || next == ExecutionStatus::Failed || claims > 0);
            status = next;
        }
        prop_assert!(ends <= 1);
    }
}
