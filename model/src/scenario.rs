//! The bounds of one run of the checker: a few executions, a few processes, and the number of each fault.

/// The work of an attempt between its claim and its finish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Work {
    /// Records this many steps.
    Plain(u8),
    /// Records a turn, asks a person, records the approved call.
    Asks,
    /// Starts the execution with this number and waits for its end.
    Spawns(u8),
    /// Is started by this execution.
    Child(u8),
    /// Reserves a model call, makes it, records and settles it.
    Pays,
    /// Does as [`Pays`](Self::Pays), as a child of this execution that runs beside it from the start.
    PayingChild(u8),
    /// Runs under a concurrency limit.
    Limited,
    /// Records one step; it was held at two worker deaths before.
    Suspect,
}

impl Work {
    /// Number of steps that are recorded when it has finished.
    #[must_use]
    pub fn steps(self) -> usize {
        match self {
            Self::Plain(steps) => steps.into(),
            Self::Asks => 2,
            Self::Pays | Self::PayingChild(_) | Self::Suspect => 1,
            Self::Spawns(_) | Self::Child(_) | Self::Limited => 0,
        }
    }

    /// Returns true if it makes a model call under the budget.
    #[must_use]
    pub fn pays(self) -> bool {
        matches!(self, Self::Pays | Self::PayingChild(_))
    }
}

/// A rule of core-rules.md that is left out; the checker must find the fault that it prevents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Broken {
    /// Rule 1: a process does not compare the database with its memory.
    NoReconcile,
    /// Rule 2: a write is fenced by the token in its snapshot, without a lock.
    TokenFence,
    /// Rule 2: a worker renews after it expired or was declared dead.
    Revival,
    /// Rule 3: a park does not compare the wake counter.
    BlindPark,
    /// Rule 4: expired workers are buried at once after an outage.
    NoGap,
    /// Rule 24: a burial trusts the heartbeat in its snapshot and does not check it again under the lock.
    BlindBurial,
    /// Rule 24: a renewal writes the heartbeat without locking the row that burials lock.
    UnfencedRenewal,
    /// Rule 25: suspects are counted when they are reaped.
    SuspectsAtReap,
    /// Rule 25: suspects are counted at the death, in a snapshot that is older than the lock.
    SuspectsBeforeTheLock,
    /// Rule 12: a limit counts running executions; there are no slot rows.
    CountedSlots,
    /// Rule 12: a freed slot is handed over as the snapshot shows it, without locking and checking its row.
    CarelessHandOver,
    /// Rule 13: returned money wakes no execution.
    SilentSettle,
    /// Rule 17: a park does not check the cancel flag again.
    ParkIgnoresCancel,
    /// Rule 17: a reaper does not check the cancel flag.
    ReapIgnoresCancel,
    /// Rule 17: a spawn judges its parent by its snapshot.
    BlindSpawn,
    /// A cancel of a child waits for the child's row while it holds the parent's; a caller's cancel locks them in
    /// the opposite order.
    WaitingSweep,
    /// A fold waits for an execution that it wakes while it holds another; a cancel locks a child and then its parent.
    WaitingFold,
    /// A statement that ends an execution deletes its row in `parked` by its own snapshot, which is older than a
    /// park that it waited for. `longhaul_unpark` prevents this.
    SnapshotDelete,
    /// ADR 41: an end applies its write without checking that it is the next of the lease.
    UnnumberedEnd,
    /// ADR 41: the last write is committed before the end that carries it, by a statement of its own.
    WriteThenEnd,
    /// ADR 41: an end is committed before the write that it carries, which a statement of its own applies.
    EndThenWrite,
}

/// The bounds of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scenario {
    /// Its name in reports.
    pub name: &'static str,
    /// The executions by number.
    pub work: Vec<Work>,
    /// Number of worker processes.
    pub processes: u8,
    /// Maximum number of statements under way.
    pub statements: usize,
    /// True if a statement locks its worker's row together with the rows it writes and its reply arrives at once.
    /// Scenarios with one execution cover the states in between.
    pub is_coarse: bool,
    /// True if the end of a lease may carry the write with the last step (ADR 41). Off where other rules are the
    /// subject, because the choice doubles the ways to an end.
    pub ends_in_one_commit: bool,
    /// Number of times a process loses its lease: it is paused for longer than the lease, or gone.
    pub expiries: u8,
    /// Number of lost replies.
    pub losses: u8,
    /// Number of cancels by a caller.
    pub cancels: u8,
    /// Number of times an attempt releases its execution.
    pub releases: u8,
    /// Number of times an attempt fails and waits for its retry.
    pub retries: u8,
    /// Number of Postgres outages longer than a lease.
    pub outages: u8,
    /// Number of additions to the budget.
    pub raises: u8,
    /// Units that each of them adds.
    pub raise: u8,
    /// Number of times a process loses its connection to Postgres for longer than its lease, and gets it back.
    pub cuts: u8,
    /// The budget in units; a call reserves [`ESTIMATE`] and costs [`COST`].
    pub cap: u8,
    /// Number of slots of the concurrency limit.
    pub slots: u8,
    /// The rule that is left out, if any.
    pub broken: Option<Broken>,
}

/// Units that a model call reserves.
pub const ESTIMATE: u8 = 2;
/// Units that a model call costs.
pub const COST: u8 = 1;

impl Scenario {
    /// Two processes without faults.
    #[must_use]
    pub fn new(name: &'static str, work: Vec<Work>) -> Self {
        Self {
            name,
            work,
            processes: 2,
            statements: 3,
            is_coarse: false,
            ends_in_one_commit: false,
            expiries: 0,
            losses: 0,
            cancels: 0,
            releases: 0,
            retries: 0,
            outages: 0,
            raises: 0,
            raise: ESTIMATE,
            cuts: 0,
            cap: 0,
            slots: 0,
            broken: None,
        }
    }

    /// A process is paused or lost while it works, and a caller cancels.
    #[must_use]
    pub fn leases() -> Self {
        Self { expiries: 1, cancels: 1, retries: 1, ..Self::new("leases", vec![Work::Plain(2)]) }
    }

    /// Replies to claims, records and conclusions are lost.
    #[must_use]
    pub fn replies() -> Self {
        Self { expiries: 1, losses: 2, releases: 1, ..Self::new("replies", vec![Work::Plain(1)]) }
    }

    /// The last step is recorded alone or with the finish, and a process is lost between.
    #[must_use]
    pub fn endings() -> Self {
        Self { expiries: 1, losses: 1, ends_in_one_commit: true, ..Self::new("endings", vec![Work::Plain(2)]) }
    }

    /// An end with a step parks the execution, and its sender repeats it while another process holds the next lease.
    #[must_use]
    pub fn repeats() -> Self {
        Self { name: "repeats", expiries: 0, losses: 2, retries: 1, ..Self::endings() }
    }

    /// A person decides before, during and after the park.
    #[must_use]
    pub fn people() -> Self {
        Self { expiries: 1, cancels: 1, losses: 1, ..Self::new("people", vec![Work::Asks]) }
    }

    /// A parent waits for its child.
    #[must_use]
    pub fn children() -> Self {
        Self {
            expiries: 1,
            cancels: 1,
            is_coarse: true,
            ..Self::new("children", vec![Work::Spawns(1), Work::Child(0)])
        }
    }

    /// A caller cancels parent and child while the sweep goes down the tree.
    #[must_use]
    pub fn trees() -> Self {
        Self { name: "trees", expiries: 0, cancels: 2, ..Self::children() }
    }

    /// Two executions under a limit of one.
    #[must_use]
    pub fn slots() -> Self {
        Self { slots: 1, expiries: 1, cancels: 1, is_coarse: true, ..Self::new("slots", vec![Work::Limited; 2]) }
    }

    /// Two executions under a budget that holds one reservation at a time, and a process is lost.
    #[must_use]
    pub fn budgets() -> Self {
        Self { cap: 3, expiries: 1, statements: 2, is_coarse: true, ..Self::new("budgets", vec![Work::Pays; 2]) }
    }

    /// As [`budgets`](Self::budgets), but a caller cancels one or adds to the budget; a call is settled alone or with
    /// the end of its lease.
    #[must_use]
    pub fn raises() -> Self {
        Self {
            cap: 2,
            cancels: 1,
            raises: 1,
            is_coarse: true,
            ends_in_one_commit: true,
            ..Self::new("raises", vec![Work::Pays; 2])
        }
    }

    /// A raise wakes a parent and its child in one transaction while a caller cancels one of them.
    #[must_use]
    pub fn families() -> Self {
        Self {
            cap: 1,
            cancels: 1,
            raises: 1,
            raise: 2 * ESTIMATE,
            statements: 2,
            is_coarse: true,
            ..Self::new("families", vec![Work::Pays, Work::PayingChild(0)])
        }
    }

    /// Postgres is away for longer than a lease, and one process is really lost.
    #[must_use]
    pub fn outage() -> Self {
        Self { outages: 1, expiries: 1, ..Self::new("outage", vec![Work::Plain(1)]) }
    }

    /// A process loses its connection and returns while other workers bury it.
    #[must_use]
    pub fn cut() -> Self {
        Self { cuts: 1, ..Self::new("cut", vec![Work::Plain(1)]) }
    }

    /// A worker dies while it holds two suspects, or one, or claims the other during its burial.
    #[must_use]
    pub fn suspects() -> Self {
        Self { expiries: 1, statements: 2, ..Self::new("suspects", vec![Work::Suspect; 2]) }
    }

    /// Every scenario.
    #[must_use]
    pub fn all() -> Vec<Self> {
        vec![
            Self::leases(),
            Self::replies(),
            Self::endings(),
            Self::repeats(),
            Self::people(),
            Self::children(),
            Self::trees(),
            Self::slots(),
            Self::budgets(),
            Self::raises(),
            Self::families(),
            Self::outage(),
            Self::cut(),
            Self::suspects(),
        ]
    }

    /// Returns the broken twin of this scenario.
    #[must_use]
    pub fn without(self, broken: Broken) -> Self {
        Self { broken: Some(broken), ..self }
    }

    pub(crate) fn is(&self, broken: Broken) -> bool {
        self.broken == Some(broken)
    }

    pub(crate) fn work(&self, execution: u8) -> Work {
        self.work[usize::from(execution)]
    }

    /// Returns the execution that started this one.
    #[must_use]
    pub fn parent(&self, execution: u8) -> Option<u8> {
        match self.work(execution) {
            Work::Child(parent) | Work::PayingChild(parent) => Some(parent),
            Work::Plain(_) | Work::Asks | Work::Spawns(_) | Work::Pays | Work::Limited | Work::Suspect => None,
        }
    }

    /// Returns the execution that the budget belongs to.
    pub(crate) fn payer(&self) -> Option<u8> {
        (0..).zip(&self.work).find(|(_, work)| work.pays()).map(|(at, _)| at)
    }

    /// Returns the executions that this one starts.
    pub(crate) fn children_of(&self, execution: u8) -> impl Iterator<Item = u8> {
        (0..).zip(&self.work).map(|(at, _)| at).filter(move |&at| self.parent(at) == Some(execution))
    }
}
