//! Uses of a resource by the measured tenant, while the other holds it.

use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use futures::StreamExt as _;
use reqwest::Method;
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval, timeout},
};

use super::super::{
    environment::{BenchEnvironment, Caller, DEFINITION, request},
    starts::{GIVE_UP, Pace, Starts},
};

/// Size of an upload: one that takes memory, unlike a small one.
const UPLOAD_BYTES: usize = 256 * 1_024;

/// One use of a resource by the measured tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// An upload of 256 KiB
    Upload,
    /// A list of executions
    List,
    /// From the request for an event stream to its first event
    Stream,
}

impl Use {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Upload => "upload",
            Self::List => "list",
            Self::Stream => "stream",
        }
    }

    /// Measures uses at the pace.
    pub(super) async fn measure(self, environment: &BenchEnvironment, pace: Pace) -> anyhow::Result<Starts> {
        let body = request(DEFINITION, usize::try_from(pace.first)?);
        let ended = environment.caller.run(&body).await?;
        let execution = ended["id"].as_str().context("an execution has an id")?.to_owned();
        let mut ticks = interval(pace.pause());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let (mut running, mut starts) = (JoinSet::new(), Starts::new()?);
        for number in 0..pace.submits() {
            ticks.tick().await;
            let (caller, execution) = (environment.caller.clone(), execution.clone());
            running.spawn(async move {
                let started = Instant::now();
                let done = timeout(GIVE_UP, self.once(&caller, &execution, number)).await;
                (pace.is_warm_up(number), started.elapsed(), done.unwrap_or_else(|_| bail!("it took too long")))
            });
        }
        while let Some(ended) = running.join_next().await {
            let (is_warm_up, taken, done) = ended?;
            if !is_warm_up {
                starts.record(taken, done)?;
            }
        }
        Ok(starts)
    }

    async fn once(self, caller: &Caller, execution: &str, number: u32) -> anyhow::Result<()> {
        let (method, path, body) = match self {
            Self::Stream => {
                let mut events = caller.events(&format!("/v1/executions/{execution}/events"), None, None).await?;
                events.next().await.context("the stream ended before its first event")??;
                return Ok(());
            }
            Self::Upload => {
                (Method::POST, format!("/v1/files?name=of-{number}"), Bytes::from(vec![b'x'; UPLOAD_BYTES]))
            }
            Self::List => (Method::GET, "/v1/executions?status=FINISHED".to_owned(), Bytes::new()),
        };
        let (status, body) = caller.send(method, &path, body).await?;
        ensure!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&body));
        Ok(())
    }
}
