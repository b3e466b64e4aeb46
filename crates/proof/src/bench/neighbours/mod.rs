//! Isolation between tenants: one tenant's start latency while another attacks, compared with no load and with an
//! ordinary load.

mod attacker;
mod attacks;
mod holding;
mod hostile;
mod outage;
mod report;
mod uses;

use std::{sync::Arc, time::Duration};

use anyhow::ensure;
use clap::ValueEnum as _;
use longhaul_command::{Context, Exit};
use longhaul_domain::TenantId;
use longhaul_shared::clock::{Clock, SystemClock};
use longhaul_store::tenants::api_keys::Scope;
use tokio::time::{Instant, sleep};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use self::{
    attacker::{Attacked, Move, Shape, attack},
    attacks::Attack,
    report::{Row, Window},
    uses::Use,
};
use super::{
    bare_commits::Floor,
    conditions::conditions,
    environment::{Bare, BenchEnvironment, Caller, EnvironmentOptions},
    starts::{Pace, Starts},
};

/// Executions of each floor measurement.
const FLOOR_EXECUTIONS: u32 = 1_000;
/// Maximum wait until the attacker's executions have ended.
const DRAIN_LIMIT: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Executions cancelled by one statement.
const CANCELLED_AT_ONCE: i64 = 500;

#[derive(Debug, Clone, clap::Args)]
pub(super) struct NeighboursArgs {
    /// Submits per second of the measured tenant; two while a resource is held
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rate: u32,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Number of measurements of each attack
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=20))]
    rounds: u32,
    /// Connections of the attacker
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    connections: u16,
    /// Maximum number of requests of each attack
    #[arg(long)]
    requests: Option<u64>,
    /// Executions that wait for the model before it recovers
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    waiting: u32,
    /// Worker processes
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=16))]
    workers: u8,
    /// Only these attacks; may be given more than once
    #[arg(long)]
    attack: Vec<Attack>,
}

pub(super) async fn run(args: NeighboursArgs, context: &Context) -> anyhow::Result<Exit> {
    let attacks = if args.attack.is_empty() { Attack::value_variants().to_vec() } else { args.attack.clone() };
    let (holds, sends): (Vec<_>, Vec<_>) = attacks.into_iter().partition(|attack| attack.holds());
    let bare = Bare::start().await?;
    let conditions = conditions(&bare.options).await?;
    let floor = Floor::measure(&bare.options, FLOOR_EXECUTIONS).await?;
    let mut rows = Vec::new();
    let mut measured = Ok(());
    if !sends.is_empty() {
        let fleet = EnvironmentOptions { workers: args.workers.into(), ..EnvironmentOptions::default() };
        measured = measure(bare.start_environment(fleet).await?, &args, sends, &mut rows).await;
    }
    if measured.is_ok() && !holds.is_empty() {
        let environment = Bare::start().await?.start_environment(holding::environment()).await?;
        let args = NeighboursArgs { rate: holding::RATE, ..args.clone() };
        measured = measure(environment, &args, holds, &mut rows).await;
    }
    report::print(context, &args, &rows, (conditions, &floor));
    measured.map(|()| Exit::Done)
}

/// Measures these attacks one after the other, and stops the environment.
async fn measure(
    environment: BenchEnvironment,
    args: &NeighboursArgs,
    attacks: Vec<Attack>,
    rows: &mut Vec<Row>,
) -> anyhow::Result<()> {
    let scopes = [Scope::ExecutionsRead, Scope::ExecutionsWrite, Scope::DefinitionsRead, Scope::DefinitionsWrite];
    let attacker = environment.add_tenant("attacker", &scopes).await?;
    let mut street = Street { environment: Arc::new(environment), attacker, args: args.clone(), next: 1 };
    let mut measured = Ok(());
    for attack in attacks {
        match street.measure(attack).await {
            Ok(row) => rows.push(row),
            // Stop here: leftovers of this attack would distort further measurements.
            Err(error) => {
                measured = Err(error.context(format!("while the attack `{}` was measured", attack.name())));
                break;
            }
        }
    }
    if let Some(environment) = Arc::into_inner(street.environment) {
        environment.stop().await?;
    }
    measured
}

/// Two tenants of one fleet.
struct Street {
    environment: Arc<BenchEnvironment>,
    attacker: (TenantId, Caller),
    args: NeighboursArgs,
    /// Number of the next measured execution.
    next: u32,
}

/// Requests of the attacker, at a rate or as fast as they are answered.
struct Load {
    moves: Vec<Move>,
    per_second: Option<f64>,
}

impl Street {
    /// Measures without load, under the attack, and under an ordinary load of the same request rate, for each
    /// round.
    async fn measure(&mut self, attack: Attack) -> anyhow::Result<Row> {
        let mut row = Row::new(attack)?;
        for _ in 0..self.args.rounds {
            let measured = attack.measured();
            let (quiet, _) = self.window(measured, None).await?;
            row.quiet.add(&quiet)?;
            let since = SystemClock::new().now();
            let mut prepared = Attacked::default();
            let moves = attack.prepare(&self.attacker.1, &mut prepared.answers).await?;
            if attack == Attack::Outage {
                outage::begin(&self.environment, &self.attacker, usize::try_from(self.args.waiting)?).await?;
                outage::end(&self.environment).await?;
            }
            let held = holding::begin(attack, &self.environment, &self.attacker).await?;
            let (attacked, mut done) = self.window(measured, Some(Load { moves, per_second: None })).await?;
            drop(held);
            row.attacked.add(&attacked)?;
            let per_second = done.per_second();
            done.add(prepared);
            row.requests.add(done);
            if !attack.holds() {
                self.drain(false).await?;
            }
            for (standing, count) in self.environment.store.standings(self.attacker.0, since).await? {
                *row.executions.entry(standing).or_default() += count;
            }
            self.drain(true).await?;
            attack.clean_up(&self.attacker.1).await;
            if attack != Attack::Plain && !attack.holds() {
                let per_second = if attack == Attack::Outage { self.backlog_per_second() } else { per_second };
                let plain = Load { moves: attack.plain(), per_second: Some(per_second) };
                let (plain, done) = self.window(measured, Some(plain)).await?;
                row.plain.get_or_insert(Window::new()?).add(&plain)?;
                row.plain_requests.add(done);
                self.drain(true).await?;
            }
        }
        Ok(row)
    }

    /// Batches per second that create, within one measurement, as many executions as waited for the model.
    fn backlog_per_second(&self) -> f64 {
        f64::from(self.args.waiting) / attacks::ITEMS as f64 / f64::from(self.args.seconds)
    }

    /// Measures the other tenant under `load`.
    async fn window(&mut self, measured: Option<Use>, load: Option<Load>) -> anyhow::Result<(Window, Attacked)> {
        let pace = Pace { rate: self.args.rate, seconds: self.args.seconds, first: self.next };
        self.next += pace.submits();
        let stop = CancellationToken::new();
        let attacking = load.filter(|load| !load.moves.is_empty()).map(|load| {
            let (caller, stop) = (self.attacker.1.clone(), stop.clone());
            let connections = self.args.connections.into();
            let shape = Shape { connections, per_second: load.per_second, requests: self.args.requests };
            let moves = Arc::new(load.moves);
            AbortOnDropHandle::new(tokio::spawn(async move { attack(&caller, moves, shape, stop).await }))
        });
        let (before, started) = (self.environment.used(), Instant::now());
        let starts = match measured {
            Some(of) => of.measure(&self.environment, pace).await?,
            None => Starts::measure(&self.environment, pace).await?,
        };
        let used = self.environment.used().per_second(before, started.elapsed());
        stop.cancel();
        let done = match attacking {
            Some(attacking) => attacking.await??,
            None => Attacked::default(),
        };
        self.environment.ensure_alive()?;
        Ok((Window { starts, used }, done))
    }

    /// Waits until the attacker has no open executions. Gives up after the length of a measurement, unless
    /// `is_cancelling`: then it cancels them and waits for all.
    async fn drain(&self, is_cancelling: bool) -> anyhow::Result<()> {
        let (started, patience) = (Instant::now(), Duration::from_secs(self.args.seconds.into()));
        loop {
            let open = if is_cancelling {
                self.environment.store.cancel_open(self.attacker.0, CANCELLED_AT_ONCE).await?
            } else {
                usize::try_from(self.environment.store.open_and_all().await?.0)?
            };
            if open == 0 || (!is_cancelling && started.elapsed() > patience) {
                return Ok(());
            }
            ensure!(started.elapsed() < DRAIN_LIMIT, "{open} executions of the attacker do not end");
            if open < usize::try_from(CANCELLED_AT_ONCE)? {
                sleep(LOOK_EVERY).await;
            }
        }
    }
}
