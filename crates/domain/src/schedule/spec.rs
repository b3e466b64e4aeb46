//! A schedule as its owner writes it. The type of the request body, and of the stored text.

use chrono::{DateTime, Datelike, Duration, Utc};
use chrono_tz::Tz;
use longhaul_sdk::{Usd, spec::BudgetSpec};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json, value::RawValue};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

use super::{Timing, cron::Cron};
use crate::named;
use crate::{
    QUEUE_PATTERN,
    deadline::MAX_DEADLINE,
    submit_limits::{MAX_METADATA_BYTES, MAX_METADATA_FIELDS, MAX_PRIORITY, default_priority, default_queue},
};

/// Characters of keys, and of definitions, agents and zones, which are looked up.
/// Plain in a path: without `..`.
const KEY: &str = r"^[a-z0-9][a-z0-9_-]*(\.[a-z0-9_-]+)*\.?$";
const NAME: &str = r"^[^\u0000]{1,200}$";
/// Shortest and longest interval, in seconds: a minute and a year.
const MIN_INTERVAL: u32 = 60;
const MAX_INTERVAL: u32 = 366 * 24 * 3_600;
/// Last year of a time: cron lines are searched fifty years on.
const LAST_YEAR: i32 = 2_200;

named!(Overlap, CatchUp);

/// Treatment of a tick that comes while a run is under way. Two runs of a schedule never overlap.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    Serialize,
    Deserialize,
    JsonSchema,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Overlap {
    /// The tick starts no run.
    #[default]
    Skip,
    /// Its run starts when the one under way has ended.
    Queue,
    /// The run under way is cancelled; the tick's run starts when it has ended.
    CancelRunning,
}

/// Treatment of ticks that nothing fired in time, because every worker was away.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    Serialize,
    Deserialize,
    JsonSchema,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum CatchUp {
    /// One run is started for all of them.
    #[default]
    One,
    /// No run is started for a tick that is over a minute late.
    None,
}

/// Caps on all runs of a calendar month together. A run reserves its own budget before it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MonthlyBudget {
    /// Maximum cost in US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<Usd>,
    /// Maximum number of tokens, sent and received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Maximum number of model calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_model_calls: Option<u32>,
}

/// Work that is started again and again, or at one later time.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleSpec {
    /// Name of the schedule, unique per tenant.
    #[schemars(length(max = 64), regex(pattern = KEY), example = "nightly-report")]
    pub key: String,
    /// Definition to run; exactly one of `definition` and `agent`.
    #[schemars(regex(pattern = NAME))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<String>,
    /// Agent to run directly, on `{"prompt": …}` or `{"messages": […]}`.
    #[schemars(regex(pattern = NAME))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Version of the definition or agent; the newest at each tick when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<i32>,
    /// Input of every run; `{}` when absent.
    #[schemars(with = "Option<Value>", example = json!({"prompt": "Summarise the errors of yesterday."}))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Box<RawValue>>,
    /// Five fields: minute, hour, day of month, month, day of week. Exactly one of `cron`, `interval_seconds` and `at`.
    #[schemars(length(max = 200), example = "30 6 * * MON-FRI")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// IANA time zone of `cron`; UTC when absent.
    #[schemars(regex(pattern = NAME), example = "Europe/Berlin")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// Seconds from one tick to the next, a minute to a year.
    #[schemars(range(min = MIN_INTERVAL, max = MAX_INTERVAL))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_seconds: Option<u32>,
    /// The only tick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<DateTime<Utc>>,
    /// Time after which there is no tick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<DateTime<Utc>>,
    /// `skip` when absent.
    #[serde(default)]
    pub overlap: Overlap,
    /// `one` when absent.
    #[serde(default)]
    pub catch_up: CatchUp,
    /// Failures in a row after which the schedule is paused; 0 for never, 5 when absent.
    #[serde(default = "default_pause_after")]
    #[schemars(range(max = 1_000))]
    pub pause_after: u16,
    /// Budget of each run; the definition's or the agent's when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetSpec>,
    /// Budget of all runs of a calendar month, in the time zone of the schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monthly_budget: Option<MonthlyBudget>,
    /// Priority of the runs; higher first.
    #[serde(default = "default_priority")]
    #[schemars(range(min = 0, max = MAX_PRIORITY))]
    pub priority: i16,
    /// Queue of the runs.
    #[serde(default = "default_queue")]
    #[schemars(regex(pattern = QUEUE_PATTERN))]
    pub queue: String,
    /// Maximum lifetime of a run in seconds, waits included; at most 30 days. The definition's when absent.
    #[schemars(range(min = 1, max = MAX_DEADLINE.as_secs()))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_seconds: Option<u32>,
    /// Metadata of the runs for filters, at most 16 KiB.
    #[serde(default)]
    #[schemars(extend("maxProperties" = MAX_METADATA_FIELDS))]
    pub metadata: Map<String, Value>,
}

fn default_pause_after() -> u16 {
    5
}

impl ScheduleSpec {
    /// The ticks; an interval counts from `anchor`.
    ///
    /// # Errors
    /// The path of the member at fault, and what is wrong.
    pub fn timing(&self, anchor: DateTime<Utc>) -> Result<Timing, (&'static str, String)> {
        match (&self.cron, self.interval_seconds, self.at) {
            (Some(line), None, None) => {
                let cron = Cron::parse(line).map_err(|error| ("/cron", error.to_string()))?;
                let zone = self.time_zone.as_deref().unwrap_or("UTC");
                let zone: Tz = zone.parse().map_err(|_| ("/time_zone", "is no time zone of IANA".to_owned()))?;
                Ok(Timing::Cron { cron, zone })
            }
            (None, Some(seconds), None) => Ok(Timing::Interval { every: Duration::seconds(seconds.into()), anchor }),
            (None, None, Some(at)) => Ok(Timing::Once(at)),
            (_, _, _) => Err(("/cron", "exactly one of `cron`, `interval_seconds` and `at` is required".to_owned())),
        }
    }

    /// Faults that its schema cannot express, each with the path of a member.
    #[must_use]
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        let mut problems = Vec::new();
        if self.definition.is_some() == self.agent.is_some() {
            problems.push(("/definition", "exactly one of `definition` and `agent` is required".to_owned()));
        }
        problems.extend(self.timing(DateTime::UNIX_EPOCH).err());
        if self.time_zone.is_some() && self.cron.is_none() {
            problems.push(("/time_zone", "needs `cron`".to_owned()));
        }
        for (path, time) in [("/at", self.at), ("/ends_at", self.ends_at)] {
            if time.is_some_and(|time| !(1970..=LAST_YEAR).contains(&time.year())) {
                problems.push((path, format!("must be in the years 1970 to {LAST_YEAR}")));
            }
        }
        if serde_json::to_vec(&self.metadata).is_ok_and(|text| text.len() > MAX_METADATA_BYTES) {
            problems.push(("/metadata", format!("is larger than {MAX_METADATA_BYTES} bytes")));
        }
        let is_open = |caps: &MonthlyBudget| {
            caps.max_cost_usd.is_none() && caps.max_tokens.is_none() && caps.max_model_calls.is_none()
        };
        if self.monthly_budget.as_ref().is_some_and(is_open) {
            let reason = "needs one of max_cost_usd, max_tokens and max_model_calls";
            problems.push(("/monthly_budget", reason.to_owned()));
        }
        problems
    }

    /// True if the ticks of both are the same.
    #[must_use]
    pub fn has_timing_of(&self, other: &Self) -> bool {
        (&self.cron, &self.time_zone, self.interval_seconds, self.at)
            == (&other.cron, &other.time_zone, other.interval_seconds, other.at)
    }
}
