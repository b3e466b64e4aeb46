//! The floor: the rate of this PostgreSQL alone, with three bare single-row commits per execution.

use longhaul_store::{Store, StoreOptions};
use serde_json::{Value, json};

/// Numbers of clients to try; the best rate counts.
const CLIENTS: [u32; 3] = [1, 8, 32];

pub(super) struct Floor {
    by_clients: Vec<(u32, f64)>,
    /// Median duration of a single commit with one client, in milliseconds.
    pub(super) commit_ms: f64,
}

impl Floor {
    /// Measures `executions` with each number of clients.
    pub(super) async fn measure(options: &StoreOptions, executions: u32) -> anyhow::Result<Self> {
        let (mut by_clients, mut commit_ms) = (Vec::new(), 0.0);
        for clients in CLIENTS {
            let (took, commit) = Store::bare_commits(options, clients, executions).await?;
            by_clients.push((clients, f64::from(executions) / took.as_secs_f64()));
            if clients == 1 {
                commit_ms = commit.as_secs_f64() * 1_000.0;
            }
        }
        Ok(Self { by_clients, commit_ms })
    }

    /// Executions per second at the best number of clients.
    pub(super) fn per_second(&self) -> f64 {
        self.by_clients.iter().map(|(_, rate)| *rate).fold(0.0, f64::max)
    }

    pub(super) fn json(&self) -> Value {
        let by_clients: Vec<Value> =
            self.by_clients.iter().map(|(clients, rate)| json!({ "clients": clients, "per_second": rate })).collect();
        json!({ "per_second": self.per_second(), "by_clients": by_clients, "median_commit_ms": self.commit_ms })
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let line = |(clients, rate): &(u32, f64)| {
            format!("floor, three single-row commits per execution, {clients:>2} clients: {rate:>7.0}/s")
        };
        self.by_clients.iter().map(line).collect()
    }
}
