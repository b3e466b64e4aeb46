//! The retry policy: number and delay of retries per failure class.

use std::time::Duration;

use longhaul_sdk::{failure::FailureClass, spec::RetrySpec};

/// Upper bound of an honoured `Retry-After`.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 3_600);

/// Retries an execution has used, per class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RetryCounters {
    /// Retries after `transient` failures.
    pub transient: u32,
    /// Retries after `tool_error` failures.
    pub tool_error: u32,
    /// Retries after `llm_error` failures.
    pub llm_error: u32,
}

impl RetryCounters {
    /// Sum over all classes.
    #[must_use]
    pub fn total(self) -> u32 {
        self.transient + self.tool_error + self.llm_error
    }
}

/// Retry delays per class; the length of each list is the number of retries.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryPolicy {
    transient: Vec<Duration>,
    tool_error: Vec<Duration>,
    llm_error: Vec<Duration>,
    max_total: u32,
    jitter: f64,
    /// Maximum number of compressions for one request that exceeds the model's context window; `None`: until nothing is
    /// left to compress.
    pub max_compressions: Option<u32>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::from(&RetrySpec::default())
    }
}

impl From<&RetrySpec> for RetryPolicy {
    fn from(spec: &RetrySpec) -> Self {
        let delays = |own: &Option<Vec<u32>>, default: &[u32]| -> Vec<Duration> {
            own.as_deref().unwrap_or(default).iter().map(|&s| Duration::from_secs(s.into())).collect()
        };
        Self {
            transient: delays(&spec.transient_delays_seconds, &[10, 30, 90]),
            tool_error: delays(&spec.tool_error_delays_seconds, &[10, 30]),
            llm_error: delays(&spec.llm_error_delays_seconds, &[10]),
            max_total: spec.max_total.unwrap_or(5),
            jitter: spec.jitter.unwrap_or(0.0).clamp(0.0, 1.0),
            max_compressions: spec.max_compressions,
        }
    }
}

impl RetryPolicy {
    /// Returns a policy without retries and compressions.
    #[must_use]
    pub fn none() -> Self {
        Self { max_total: 0, max_compressions: Some(0), ..Self::default() }
    }

    /// Returns the delay before the next attempt, or `None` if no retry is left. `chance` in `0..1` spreads the
    /// delay if the policy has jitter. A longer `retry_after` replaces the delay.
    #[must_use]
    pub fn delay(
        &self,
        class: FailureClass,
        had: RetryCounters,
        retry_after: Option<Duration>,
        chance: f64,
    ) -> Option<Duration> {
        if had.total() >= self.max_total {
            return None;
        }
        let delay = match class {
            FailureClass::Transient => self.transient.get(had.transient as usize),
            FailureClass::ToolError => self.tool_error.get(had.tool_error as usize),
            FailureClass::LlmError => self.llm_error.get(had.llm_error as usize),
            // The agent loop compresses the context itself; a `context_limit` failure that ends the attempt has no
            // compression left.
            FailureClass::ContextLimit | FailureClass::Permanent | FailureClass::HumanRejected => None,
        }?;
        let spread = delay.mul_f64(1.0 + self.jitter * chance);
        Some(spread.max(retry_after.unwrap_or_default().min(MAX_RETRY_AFTER)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn had(transient: u32, tool_error: u32, llm_error: u32) -> RetryCounters {
        RetryCounters { transient, tool_error, llm_error }
    }

    #[test]
    fn each_class_has_its_own_series() {
        let policy = RetryPolicy::default();
        let delay = |class, had| policy.delay(class, had, None, 0.5).map(|d| d.as_secs());
        let series =
            |class, had: fn(u32) -> RetryCounters| (0..5).map_while(|n| delay(class, had(n))).collect::<Vec<_>>();
        assert_eq!(series(FailureClass::Transient, |n| had(n, 0, 0)), [10, 30, 90]);
        assert_eq!(series(FailureClass::ToolError, |n| had(0, n, 0)), [10, 30]);
        assert_eq!(series(FailureClass::LlmError, |n| had(0, 0, n)), [10]);
        for never in [FailureClass::ContextLimit, FailureClass::Permanent, FailureClass::HumanRejected] {
            assert_eq!(delay(never, had(0, 0, 0)), None);
        }
    }

    #[test]
    fn five_retries_are_the_cap_over_all_classes() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.delay(FailureClass::LlmError, had(3, 2, 0), None, 0.0), None);
        assert!(policy.delay(FailureClass::LlmError, had(3, 1, 0), None, 0.0).is_some());
    }

    #[test]
    fn longer_retry_after_wins_up_to_a_day() {
        let policy = RetryPolicy::default();
        let delay = |seconds| {
            policy
                .delay(FailureClass::Transient, had(0, 0, 0), Some(Duration::from_secs(seconds)), 0.0)
                .map(|d| d.as_secs())
        };
        assert_eq!(delay(5), Some(10));
        assert_eq!(delay(60), Some(60));
        assert_eq!(delay(1_000_000), Some(86_400));
    }
}
