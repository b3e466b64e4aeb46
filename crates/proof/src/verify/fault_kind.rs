//! The kinds of faults that can be injected into a fleet.

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum FaultKind {
    /// Kill a worker with SIGKILL and restart it
    KillWorker,
    /// Pause a worker (SIGSTOP) for longer than its lease, then resume it (SIGCONT)
    PauseWorker,
    /// Hold all traffic between a worker and Postgres for longer than its lease, then deliver it
    PartitionWorker,
    /// Stop the processes one after another with SIGTERM; restart each when it has drained
    RollingRestart,
    /// Kill the API with SIGKILL and restart it
    KillApi,
    /// Pause the API (SIGSTOP) for longer than a caller waits, then resume it (SIGCONT)
    PauseApi,
    /// Kill Redis and restart it empty after three seconds
    RedisRestart,
    /// Empty Redis (FLUSHALL) at a moment when it holds wake-ups
    RedisFlush,
    /// Pause Redis for three seconds
    RedisPause,
    /// Kill Postgres with all its backends and restart it
    PostgresRestart,
    /// Pause Postgres for longer than a lease
    PostgresPause,
    /// Kill Postgres with all its backends and promote its synchronous standby
    PromoteStandby,
    /// End every session of Postgres as an administrator
    EndSessions,
    /// Cut every connection to Postgres and Redis
    CutConnections,
    /// Lose answers of Postgres with their connections, so that the outcome of a commit is unknown
    LoseReplies,
    /// Add wake-ups without work, up to 2,500 per second
    DoubleWakeups,
    /// Lose every wake-up on its way to a worker for three seconds
    DropWakeups,
    /// Let the model refuse all requests for three seconds and leave earlier ones unanswered
    ModelOutage,
}

impl FaultKind {
    pub const ALL: [Self; 18] = [
        Self::KillWorker,
        Self::PauseWorker,
        Self::PartitionWorker,
        Self::RollingRestart,
        Self::KillApi,
        Self::PauseApi,
        Self::RedisRestart,
        Self::RedisFlush,
        Self::RedisPause,
        Self::PostgresRestart,
        Self::PostgresPause,
        Self::PromoteStandby,
        Self::EndSessions,
        Self::CutConnections,
        Self::LoseReplies,
        Self::DoubleWakeups,
        Self::DropWakeups,
        Self::ModelOutage,
    ];

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::KillWorker => "kill-worker",
            Self::PauseWorker => "pause-worker",
            Self::PartitionWorker => "partition-worker",
            Self::RollingRestart => "rolling-restart",
            Self::KillApi => "kill-api",
            Self::PauseApi => "pause-api",
            Self::RedisRestart => "redis-restart",
            Self::RedisFlush => "redis-flush",
            Self::RedisPause => "redis-pause",
            Self::PostgresRestart => "postgres-restart",
            Self::PostgresPause => "postgres-pause",
            Self::PromoteStandby => "promote-standby",
            Self::EndSessions => "end-sessions",
            Self::CutConnections => "cut-connections",
            Self::LoseReplies => "lose-replies",
            Self::DoubleWakeups => "double-wakeups",
            Self::DropWakeups => "drop-wakeups",
            Self::ModelOutage => "model-outage",
        }
    }

    /// The processes whose journal writes the fault may interrupt. None for a rolling restart (a drain finishes its
    /// step), for Redis and the API (no journal write needs them) and for the model (without it there is nothing to
    /// record).
    #[must_use]
    pub fn reach(self) -> FaultScope {
        match self {
            Self::KillWorker | Self::PauseWorker | Self::PartitionWorker => FaultScope::Victim,
            Self::PostgresRestart
            | Self::PostgresPause
            | Self::PromoteStandby
            | Self::EndSessions
            | Self::CutConnections
            | Self::LoseReplies => FaultScope::Everybody,
            Self::RollingRestart
            | Self::KillApi
            | Self::PauseApi
            | Self::RedisRestart
            | Self::RedisFlush
            | Self::RedisPause
            | Self::DoubleWakeups
            | Self::DropWakeups
            | Self::ModelOutage => FaultScope::Nobody,
        }
    }

    /// Returns true if the fault makes Postgres itself unavailable.
    #[must_use]
    pub fn is_of_postgres(self) -> bool {
        matches!(self, Self::PostgresRestart | Self::PostgresPause | Self::PromoteStandby | Self::EndSessions)
    }

    /// Returns true if the rate must recover within the bar after the fault.
    #[must_use]
    pub fn is_of_a_server(self) -> bool {
        self.is_of_postgres() || matches!(self, Self::RedisRestart | Self::RedisFlush | Self::RedisPause)
    }
}

/// The processes whose journal writes a fault may interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultScope {
    /// The victim process.
    Victim,
    /// Every process.
    Everybody,
    /// No process: the fault must not cause any repeated request or effect.
    Nobody,
}
