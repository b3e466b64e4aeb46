//! Costs of executions besides time: CPU time of every part, write-ahead log and transactions.

use longhaul_store::proof::bare_commits::LogPosition;
use serde_json::{Map, Value, json};

use super::environment::{BenchEnvironment, Used};

/// Readings of the counters at one moment.
pub(super) struct Meter {
    used: Used,
    log: LogPosition,
}

/// Average costs per execution.
pub(super) struct Costs {
    /// Per 1,000 executions.
    used: Used,
    wal_bytes: f64,
    /// Transactions that write.
    commits: f64,
}

impl Meter {
    pub(super) async fn read(environment: &BenchEnvironment) -> anyhow::Result<Self> {
        Ok(Self { used: environment.used(), log: environment.store.log_position().await? })
    }

    /// The costs per execution since this reading.
    pub(super) async fn since(&self, environment: &BenchEnvironment, executions: usize) -> anyhow::Result<Costs> {
        let now = Self::read(environment).await?;
        let each = |now: i64, then: i64| (now - then) as f64 / executions.max(1) as f64;
        Ok(Costs {
            used: now.used.per_thousand(self.used, executions),
            wal_bytes: each(now.log.wal_bytes, self.log.wal_bytes),
            commits: each(now.log.transaction_ids, self.log.transaction_ids),
        })
    }
}

impl Costs {
    /// Adds the costs to a benchmark's JSON result.
    pub(super) fn add_to(&self, mut result: Value) -> Value {
        let costs = json!({
            "cpu_seconds_per_1000_executions": self.used.json(),
            "wal_bytes_per_execution": self.wal_bytes, "commits_per_execution": self.commits,
        });
        if let (Value::Object(result), Value::Object(costs)) = (&mut result, costs) {
            Map::extend(result, costs);
        }
        result
    }

    pub(super) fn lines(&self) -> [String; 2] {
        let Used { api, worker, postgres, redis, bench } = self.used;
        [
            format!("per execution {:.0} bytes of WAL, {:.2} commits", self.wal_bytes, self.commits),
            format!(
                "CPU seconds per 1,000: API {api:.3}, worker {worker:.3}, PostgreSQL {postgres:.3}, Redis {redis:.3}, \
                 load and model {bench:.3}"
            ),
        ]
    }
}
