//! The deliveries of one lane: a sliding window of attempts, so that none waits for a slower one.

use std::{
    collections::{HashSet, VecDeque},
    time::Duration,
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use longhaul_domain::TenantId;
use longhaul_fairness::Share;
use longhaul_store::{
    StoreError,
    webhooks::{DisabledBecause, Due, EndpointKind, Lane, LaneState, Outcome, Settled},
};
use longhaul_telemetry::metrics;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::{delivery::Delivery, signature::secret};

/// Longest wait for a place among the attempts of the process; then the lane is given back.
const PLACE_WAIT: Duration = Duration::from_secs(15);
/// Time for which a lane is held beyond the wait for a place and an attempt.
const SPARE: Duration = Duration::from_secs(30);
/// Pause before a lane that found nothing looks again, while attempts are under way.
const NAP: Duration = Duration::from_millis(500);
/// Deliveries that are read ahead, as a multiple of the window.
const READ_AHEAD: usize = 2;

/// End of one step of a lane.
enum Step {
    /// Deliveries that are due.
    Found(Vec<Due>),
    /// A place for an attempt; none if no attempt of the process ended in time.
    Place(Option<Share<TenantId>>),
    Attempted(Settled),
    /// These deliveries were stored.
    Stored(Vec<Uuid>, LaneState),
    /// A pause is over.
    Awake,
}

/// A lane under way.
struct Run<'a> {
    delivery: &'a Delivery,
    lane: &'a Lane,
    secrets: Vec<Vec<u8>>,
    steps: FuturesUnordered<BoxFuture<'a, Result<Step, StoreError>>>,
    /// Deliveries that were found and not begun.
    found: VecDeque<Due>,
    /// Deliveries that were found and whose attempts are not stored.
    under_way: HashSet<Uuid>,
    attempting: usize,
    /// True while one attempt waits for a place. The others of the lane wait behind it, so that the lanes of a tenant
    /// take turns.
    is_waiting: bool,
    /// Attempts to store.
    settled: Vec<Settled>,
    is_looking: bool,
    is_storing: bool,
    /// True if the last look found nothing, and since then nothing was stored and no pause ended.
    is_dry: bool,
    is_napping: bool,
    /// True once nothing more is begun.
    is_over: bool,
    /// True if the endpoint failed: what is under way then counts as one failure, and is stored together.
    has_failed: bool,
    window: usize,
}

/// Time for which a lane is held from a claim or a store on.
pub(crate) fn hold(attempt: Duration) -> Duration {
    PLACE_WAIT + attempt + SPARE
}

/// Delivers what is due on a lane until nothing is, its endpoint fails, or `place` is asked back.
///
/// # Errors
/// Postgres is unavailable.
pub(crate) async fn serve(delivery: &Delivery, lane: &Lane, place: &Share<TenantId>) -> Result<(), StoreError> {
    let mut run = Run::new(delivery, lane);
    loop {
        run.begin();
        if run.is_done() {
            return Ok(());
        }
        tokio::select! {
            step = run.steps.next() => {
                if let Some(step) = step {
                    run.take(step?);
                }
            }
            () = delivery.shutdown.cancelled(), if !run.is_over => run.is_over = true,
            () = place.asked_back(), if !run.is_over => run.is_over = true,
        }
    }
}

impl<'a> Run<'a> {
    fn new(delivery: &'a Delivery, lane: &'a Lane) -> Self {
        let numbers = [Some(lane.secret_number), lane.signs_twice.then(|| lane.secret_number - 1)];
        let of = |number| secret(&delivery.pepper, lane.endpoint, number);
        Self {
            delivery,
            lane,
            secrets: numbers.into_iter().flatten().map(of).collect(),
            steps: FuturesUnordered::new(),
            found: VecDeque::new(),
            under_way: HashSet::new(),
            attempting: 0,
            is_waiting: false,
            settled: Vec::new(),
            is_looking: false,
            is_storing: false,
            is_dry: false,
            is_napping: false,
            is_over: false,
            has_failed: false,
            // One probe of an endpoint to which nothing was delivered since its last failure.
            window: if lane.is_doubtful { 1 } else { window(delivery, lane) },
        }
    }

    /// Begins every step that may begin now.
    fn begin(&mut self) {
        let waits = self.is_storing || (self.has_failed && self.attempting > 0);
        if !waits && !self.settled.is_empty() {
            self.store();
        }
        if self.is_over {
            return;
        }
        while self.attempting < self.window && !self.is_waiting && !self.found.is_empty() {
            match self.delivery.attempts.try_take(self.lane.tenant, 1) {
                Some(place) => self.attempt(place),
                None => self.wait_for_place(),
            }
        }
        if !self.is_looking && !self.is_dry && self.found.len() < self.window {
            self.look();
        }
        // A full window finds out when an attempt has ended.
        if self.is_dry && !self.is_napping && self.attempting < self.window {
            self.is_napping = true;
            self.steps.push(sleep(NAP).map(|()| Ok(Step::Awake)).boxed());
        }
    }

    /// True if nothing is under way. A lane that is over waits for no place.
    fn is_done(&self) -> bool {
        let is_waiting = self.is_waiting && !self.is_over;
        self.attempting == 0 && !is_waiting && !self.is_looking && !self.is_storing
    }

    fn wait_for_place(&mut self) {
        self.is_waiting = true;
        let place = timeout(PLACE_WAIT, self.delivery.attempts.take(self.lane.tenant, 1));
        self.steps.push(place.map(|place| Ok(Step::Place(place.ok().flatten()))).boxed());
    }

    fn attempt(&mut self, place: Share<TenantId>) {
        let Some(due) = self.found.pop_front() else { return };
        self.attempting += 1;
        let (delivery, lane, secrets) = (self.delivery, self.lane, self.secrets.clone());
        let attempt = async move {
            let _place = place;
            Ok(Step::Attempted(delivery.attempt(lane, &secrets, &due).await))
        };
        self.steps.push(attempt.boxed());
    }

    fn look(&mut self) {
        self.is_looking = true;
        let (delivery, lane, most) = (self.delivery, self.lane, READ_AHEAD * self.window);
        let under_way: Vec<Uuid> = self.under_way.iter().copied().collect();
        let look = async move {
            let looking = delivery.store.due_deliveries(lane, &under_way, most);
            delivery.on_store(lane.tenant, looking).await.map(Step::Found)
        };
        self.steps.push(look.boxed());
    }

    fn store(&mut self) {
        self.is_storing = true;
        let (delivery, lane, settled) = (self.delivery, self.lane, std::mem::take(&mut self.settled));
        let store = async move {
            let limits = (delivery.options.patience, hold(delivery.options.timeout));
            let storing = delivery.store.settle_deliveries(lane, &settled, limits);
            let state = delivery.on_store(lane.tenant, storing).await?;
            Ok(Step::Stored(settled.into_iter().map(|of| of.delivery).collect(), state))
        };
        self.steps.push(store.boxed());
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Awake => (self.is_napping, self.is_dry) = (false, false),
            Step::Found(due) => {
                self.is_looking = false;
                self.is_dry = due.is_empty();
                self.under_way.extend(due.iter().map(|due| due.id));
                self.found.extend(due);
            }
            Step::Attempted(settled) => {
                self.attempting -= 1;
                metrics::webhook_attempt(settled.outcome.as_str());
                match settled.outcome {
                    Outcome::Delivered => self.window = window(self.delivery, self.lane),
                    Outcome::Refused => {}
                    Outcome::Away | Outcome::Gone => (self.is_over, self.has_failed) = (true, true),
                }
                self.settled.push(settled);
            }
            Step::Place(place) => {
                self.is_waiting = false;
                match place {
                    Some(place) if !self.is_over => self.attempt(place),
                    Some(_) => {}
                    None => self.is_over = true,
                }
            }
            Step::Stored(deliveries, state) => {
                (self.is_storing, self.is_dry) = (false, false);
                for delivery in deliveries {
                    self.under_way.remove(&delivery);
                }
                match state {
                    LaneState::Held => {}
                    LaneState::Disabled(because) => {
                        tell_disabled(self.lane, because);
                        self.is_over = true;
                    }
                    LaneState::Lost => self.is_over = true,
                }
            }
        }
    }
}

/// Attempts of a lane at a time, once one was delivered.
fn window(delivery: &Delivery, lane: &Lane) -> usize {
    match lane.kind {
        EndpointKind::Standard => delivery.options.at_once,
        // In the order of the events; chats limit the rate.
        EndpointKind::Slack | EndpointKind::Email => 1,
    }
}

fn tell_disabled(lane: &Lane, because: DisabledBecause) {
    metrics::webhooks_disabled(because.as_str(), 1);
    tracing::warn!(
        webhook.id = %lane.endpoint,
        tenant.id = %lane.tenant.0,
        reason = because.as_str(),
        "a webhook is disabled"
    );
}
