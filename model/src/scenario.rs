//! What one run of the checker looks at: a few executions, a few processes, and how often each thing may go wrong.

/// What an attempt does between its claim and its finish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Work {
    /// Records so many steps.
    Plain(u8),
    /// Records a turn, asks a person, records the call that was allowed.
    Asks,
    /// Starts the execution of this number and waits for its end.
    Spawns(u8),
    /// Is started by another execution.
    Child(u8),
    /// Reserves a model call, makes it, records and settles it.
    Pays,
    /// Runs under a concurrency limit.
    Limited,
    /// Records one step; it was held at two deaths before.
    Suspect,
}

/// A rule that is left out (core-rules.md); the checker must find what it prevents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Broken {
    /// Rule 1: nobody compares what the database says with what is in memory.
    NoReconcile,
    /// Rule 2: a write is fenced by the token its snapshot shows, and by no lock.
    TokenFence,
    /// Rule 2: an identity that expired or was declared dead renews itself.
    Revival,
    /// Rule 3: a park does not compare the wake counter.
    BlindPark,
    /// Rule 4: the dead are buried at once after an outage.
    NoGap,
    /// Rule 24: a burial trusts the heartbeat that its snapshot shows, and does not look again under the lock.
    BlindBurial,
    /// Rule 24: a renewal writes the heartbeat and does not take the row that burials take.
    UnfencedRenewal,
    /// Rule 25: suspects are counted when they are taken back.
    SuspectsAtReap,
    /// Rule 25: suspects are counted at the death, by a snapshot that is older than the lock.
    SuspectsBeforeTheLock,
    /// Rule 12: a limit counts what runs, and no row stands for a slot.
    CountedSlots,
    /// Rule 12: a freed slot is handed over as a snapshot shows it, without taking its row and looking again.
    CarelessHandOver,
    /// Rule 13: money that comes back wakes nobody.
    SilentSettle,
    /// Rule 17: a park does not look at the cancel flag again.
    ParkIgnoresCancel,
    /// Rule 17: a reaper does not look at the cancel flag.
    ReapIgnoresCancel,
    /// Rule 17: a spawn judges its parent by its snapshot.
    BlindSpawn,
    /// A cancel from above waits for the child's row while it has the parent's; a caller's cancel takes them the other way round.
    WaitingSweep,
    /// A statement that ends an execution removes its row in `parked` with its own snapshot, which is older than a park that it
    /// waited for. The store had this defect; `longhaul_unpark` is its cure.
    SnapshotDelete,
}

/// A bounded world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scenario {
    /// Its name in reports.
    pub name: &'static str,
    /// The executions.
    pub work: Vec<Work>,
    /// Worker processes.
    pub processes: u8,
    /// Statements under way at once.
    pub statements: usize,
    /// Whether a statement takes its worker's row together with the rows it writes, and its answer arrives at once. What lies
    /// between is looked at with one execution, where there is room for it.
    pub is_coarse: bool,
    /// How often a process loses its lease: it stands still for longer than that, or is gone.
    pub expiries: u8,
    /// How often an answer of Postgres does not arrive.
    pub losses: u8,
    /// How often a caller cancels.
    pub cancels: u8,
    /// How often an attempt hands its execution back.
    pub releases: u8,
    /// How often an attempt fails and waits for its next try.
    pub retries: u8,
    /// How often Postgres is away for longer than a lease.
    pub outages: u8,
    /// How often somebody adds to the budget.
    pub raises: u8,
    /// How often a process is cut off from Postgres for longer than its lease, and comes back.
    pub cuts: u8,
    /// The budget, in units; a call reserves [`ESTIMATE`] and takes [`COST`].
    pub cap: u8,
    /// Slots of the concurrency limit.
    pub slots: u8,
    /// The rule that is left out, if any.
    pub broken: Option<Broken>,
}

/// What a model call reserves.
pub const ESTIMATE: u8 = 2;
/// What it takes.
pub const COST: u8 = 1;

impl Scenario {
    /// Two processes, nothing goes wrong.
    #[must_use]
    pub fn new(name: &'static str, work: Vec<Work>) -> Self {
        Self {
            name,
            work,
            processes: 2,
            statements: 3,
            is_coarse: false,
            expiries: 0,
            losses: 0,
            cancels: 0,
            releases: 0,
            retries: 0,
            outages: 0,
            raises: 0,
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

    /// Answers are lost: of claims, of records, of conclusions.
    #[must_use]
    pub fn replies() -> Self {
        Self { expiries: 1, losses: 2, releases: 1, ..Self::new("replies", vec![Work::Plain(1)]) }
    }

    /// A person decides, before, while and after the park.
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

    /// Two executions under a budget that holds the reservation of one at a time, and a process is lost.
    #[must_use]
    pub fn budgets() -> Self {
        Self { cap: 3, expiries: 1, statements: 2, is_coarse: true, ..Self::new("budgets", vec![Work::Pays; 2]) }
    }

    /// The same, and a caller cancels one or adds to the budget.
    #[must_use]
    pub fn raises() -> Self {
        Self { cap: 2, cancels: 1, raises: 1, is_coarse: true, ..Self::new("raises", vec![Work::Pays; 2]) }
    }

    /// Postgres is away for longer than a lease, and one process is really lost.
    #[must_use]
    pub fn outage() -> Self {
        Self { outages: 1, expiries: 1, ..Self::new("outage", vec![Work::Plain(1)]) }
    }

    /// A process is cut off, and comes back while others bury it.
    #[must_use]
    pub fn cut() -> Self {
        Self { cuts: 1, ..Self::new("cut", vec![Work::Plain(1)]) }
    }

    /// A worker dies that holds two suspects, or one, or takes the other while it is buried.
    #[must_use]
    pub fn suspects() -> Self {
        Self { expiries: 1, statements: 2, ..Self::new("suspects", vec![Work::Suspect; 2]) }
    }

    /// All of them.
    #[must_use]
    pub fn all() -> Vec<Self> {
        vec![
            Self::leases(),
            Self::replies(),
            Self::people(),
            Self::children(),
            Self::trees(),
            Self::slots(),
            Self::budgets(),
            Self::raises(),
            Self::outage(),
            Self::cut(),
            Self::suspects(),
        ]
    }

    /// Its twin.
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

    /// The execution that started this one.
    #[must_use]
    pub fn parent(&self, execution: u8) -> Option<u8> {
        match self.work(execution) {
            Work::Child(parent) => Some(parent),
            Work::Plain(_) | Work::Asks | Work::Spawns(_) | Work::Pays | Work::Limited | Work::Suspect => None,
        }
    }
}
