//! A day of load under KEDA and the horizontal pod autoscaler, on the number of the product and on the backlog.
//!
//! The day is computed from a seed: few executions at night, many by day, bursts, and durations from seconds to hours.
//! The scaler is the chart's `ScaledObject`, after the documentation of KEDA (keda.sh, "Scaling Deployments") and of
//! Kubernetes ("Horizontal Pod Autoscaling": algorithm, default behaviour).

use std::collections::VecDeque;

use longhaul_store::fleet::demand::Demand;

const VALUES: &str = include_str!("../../deploy/helm/longhaul/values.yaml");

/// All times are seconds.
const DAY: u64 = 24 * 3_600;
/// Executions that a worker runs at a time.
const CONCURRENCY: u64 = 20;
const MAX_REPLICAS: u64 = 50;
/// KEDA's poll and the autoscaler's sync.
const POLL: u64 = 15;
/// Time without demand after which KEDA scales to zero.
const COOLDOWN: u64 = 300;
/// The autoscaler's default window of scaling in, of which the largest recommendation counts.
const STABILIZATION: u64 = 300;
/// Difference of the metric from its target within which the autoscaler changes nothing.
const TOLERANCE: f64 = 0.1;
/// From the creation of a pod to its first claim.
const POD_STARTS: u64 = 20;
/// `worker.drainSeconds` of the chart.
const DRAIN: u64 = 600;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Metric {
    /// `workers_wanted` of `GET /v1/fleet/demand`, target 1.
    WorkersWanted,
    /// Executions that wait for a worker, as a query of KEDA's scaler `postgresql` counts them. The target is the
    /// concurrency.
    Backlog,
}

/// An execution: its arrival and its duration under a lease.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    at: u64,
    lasts: u64,
}

#[derive(Debug)]
struct Worker {
    ready_at: u64,
    /// Ends of the executions that it holds.
    holds: Vec<u64>,
    /// End of its drain.
    drains_until: Option<u64>,
}

#[derive(Debug, Default)]
struct Day {
    scale_ins: usize,
    /// Scale-ins that left fewer workers than held an execution.
    below_busy: usize,
    /// Executions that a drain handed back.
    interrupted: usize,
    ended: usize,
    most: usize,
    /// Hours of all workers.
    worker_hours: u64,
}

/// `SplitMix64`.
struct Random(u64);

impl Random {
    /// A number from 0 to 1.
    fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A duration: log-normal with a median of one and a half minutes, at most three hours.
    fn duration(&mut self) -> u64 {
        let (u, v) = (self.share().max(1e-12), self.share());
        let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
        (90.0 * (1.5 * normal).exp()).clamp(2.0, 3.0 * 3_600.0) as u64
    }
}

fn arrivals(seed: u64) -> Vec<Arrival> {
    let mut random = Random(seed);
    let mut all = Vec::new();
    for at in 0..DAY {
        let hour = at as f64 / 3_600.0;
        // Nothing from midnight to five, most in the afternoon.
        let share = ((hour - 5.0) / 19.0 * std::f64::consts::PI).sin().max(0.0);
        if random.share() < 0.4 * share {
            all.push(Arrival { at, lasts: random.duration() });
        }
        // About eight bursts, at any time.
        if random.share() < 8.0 / DAY as f64 {
            let size = 100.0 + 700.0 * random.share();
            all.extend((0..size as usize).map(|_| Arrival { at, lasts: random.duration() }));
        }
    }
    all
}

/// The autoscaler's memory.
#[derive(Default)]
struct Scaler {
    recommendations: VecDeque<(u64, u64)>,
    last_active: u64,
}

impl Scaler {
    /// Replicas from now on. `value` and `target` are the metric's sum and its target per replica.
    fn replicas(&mut self, now: u64, current: u64, value: u64, target: u64) -> u64 {
        if value > 0 {
            self.last_active = now;
        }
        if current == 0 {
            self.recommendations.clear();
            return u64::from(value > 0);
        }
        if now - self.last_active >= COOLDOWN {
            return 0;
        }
        let ratio = value as f64 / (target * current) as f64;
        let wanted = if (1.0 - ratio).abs() <= TOLERANCE { current } else { value.div_ceil(target) };
        self.recommendations.push_back((now, wanted));
        self.recommendations.retain(|(at, _)| now - at < STABILIZATION);
        let largest = self.recommendations.iter().map(|(_, wanted)| *wanted).max().unwrap_or(current);
        let most = (2 * current).max(current + 4).min(MAX_REPLICAS);
        if wanted > current { wanted.min(most) } else { current.min(largest).max(1) }
    }
}

#[derive(Default)]
struct Fleet {
    workers: Vec<Worker>,
    due: VecDeque<u64>,
    day: Day,
}

impl Fleet {
    fn replicas(&self) -> u64 {
        self.workers.iter().filter(|worker| worker.drains_until.is_none()).count() as u64
    }

    fn demand(&self) -> Demand {
        let count = |n: usize| n as u64;
        Demand {
            due: count(self.due.len()),
            held: count(self.workers.iter().map(|worker| worker.holds.len()).sum()),
            live_workers: count(self.workers.len()),
            busy_workers: count(self.workers.iter().filter(|worker| !worker.holds.is_empty()).count()),
            slots: CONCURRENCY * count(self.workers.len()),
        }
    }

    /// Ends executions and drains, and claims, each for the worker that holds the fewest.
    fn step(&mut self, now: u64) {
        for worker in &mut self.workers {
            let before = worker.holds.len();
            worker.holds.retain(|end| *end > now);
            self.day.ended += before - worker.holds.len();
            if worker.drains_until.is_some_and(|limit| limit <= now) {
                self.day.interrupted += worker.holds.len();
                worker.holds.drain(..).for_each(|end| self.due.push_front(end - now));
            }
        }
        self.workers.retain(|worker| worker.drains_until.is_none() || !worker.holds.is_empty());
        while let Some(lasts) = self.due.front().copied() {
            let free = self.workers.iter_mut().filter(|worker| {
                worker.drains_until.is_none() && worker.ready_at <= now && (worker.holds.len() as u64) < CONCURRENCY
            });
            let Some(worker) = free.min_by_key(|worker| worker.holds.len()) else { break };
            worker.holds.push(now + lasts);
            self.due.pop_front();
        }
        self.day.most = self.day.most.max(self.workers.len());
    }

    /// Starts workers, or lets the newest ones drain, as a ReplicaSet chooses among pods that are all ready.
    fn scale(&mut self, now: u64, replicas: u64) {
        let current = self.replicas();
        for _ in current..replicas {
            self.workers.push(Worker { ready_at: now + POD_STARTS, holds: Vec::new(), drains_until: None });
        }
        if replicas < current {
            let stays = self.workers.iter().filter(|worker| worker.drains_until.is_none());
            let busy = stays.filter(|worker| !worker.holds.is_empty()).count() as u64;
            self.day.scale_ins += 1;
            self.day.below_busy += usize::from(replicas < busy);
            let newest = self.workers.iter_mut().rev().filter(|worker| worker.drains_until.is_none());
            newest.take((current - replicas) as usize).for_each(|worker| worker.drains_until = Some(now + DRAIN));
        }
    }
}

fn run(arrivals: &[Arrival], metric: Metric) -> Day {
    let (mut fleet, mut scaler, mut next) = (Fleet::default(), Scaler::default(), arrivals.iter().peekable());
    let mut seconds = 0;
    // The last executions end on the next day.
    for now in 0..2 * DAY {
        while let Some(arrival) = next.next_if(|arrival| arrival.at == now) {
            fleet.due.push_back(arrival.lasts);
        }
        fleet.step(now);
        seconds += fleet.workers.len() as u64;
        if now % POLL == 0 {
            let demand = fleet.demand();
            let (value, target) = match metric {
                Metric::WorkersWanted => (demand.workers_wanted(CONCURRENCY), 1),
                Metric::Backlog => (demand.due, CONCURRENCY),
            };
            let replicas = scaler.replicas(now, fleet.replicas(), value, target);
            fleet.scale(now, replicas);
        }
    }
    fleet.day.worker_hours = seconds / 3_600;
    fleet.day
}

#[test]
fn scaler_takes_no_busy_worker_in_any_day() {
    for setting in
        [format!("pollingSeconds: {POLL}"), format!("cooldownSeconds: {COOLDOWN}"), format!("drainSeconds: {DRAIN}")]
    {
        assert!(VALUES.contains(&setting), "the chart has another {setting}");
    }
    for seed in 1..=5 {
        let arrivals = arrivals(seed);
        let [wanted, backlog] = [Metric::WorkersWanted, Metric::Backlog].map(|metric| run(&arrivals, metric));
        println!("{} executions\n  workers_wanted {wanted:?}\n  backlog        {backlog:?}", arrivals.len());
        assert_eq!((wanted.ended, backlog.ended), (arrivals.len(), arrivals.len()), "executions that ended");
        assert_eq!(wanted.below_busy, 0, "scale-ins below the busy workers, day {seed}");
        assert!(wanted.scale_ins > 10, "the fleet never shrank, day {seed}");
        assert!(backlog.below_busy > 10, "the backlog would do as well, day {seed}");
        assert!(wanted.interrupted < backlog.interrupted, "day {seed}");
    }
}
