//! A consumer over a fake Postgres: a list of due numbers, each handed out once, and counters.

use std::{
    collections::VecDeque,
    fmt::Debug,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use longhaul_embedded::PrivateRedis;
use longhaul_queue::{
    QueueError, QueueName, QueueOptions,
    consumer::{self, ConsumerConfig, Fetched, Room},
    producer::WakeupPublisher,
};
use tokio::{sync::Semaphore, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::support::{self, wait};

/// Waits for a condition; on timeout it prints the state.
pub(crate) async fn eventually<S: Debug>(what: &str, state: impl Fn() -> S, condition: impl AsyncFn() -> bool) {
    let look = async || if condition().await { Ok(()) } else { Err(format!("{:?}", state())) };
    wait::eventually(what, Duration::from_secs(20), look).await;
}

/// Runs one command, to inspect the server.
pub(crate) async fn command<T: redis::FromRedisValue>(server: &PrivateRedis, words: &[&str]) -> T {
    support::redis::command(server.url(), words).await
}

pub(crate) fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

pub(crate) fn options(redis: &PrivateRedis) -> QueueOptions {
    QueueOptions::new(redis.url().to_owned().into(), "test")
}

#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) due: Mutex<VecDeque<usize>>,
    /// Numbers that kept permits may take.
    pub(crate) newcomers: Mutex<VecDeque<usize>>,
    pub(crate) looks: AtomicUsize,
    pub(crate) claims: AtomicUsize,
    pub(crate) empty_claims: AtomicUsize,
    pub(crate) claimed: AtomicUsize,
    pub(crate) running: AtomicUsize,
    pub(crate) most_running: AtomicUsize,
    pub(crate) finished: AtomicUsize,
    pub(crate) aborted: AtomicUsize,
    pub(crate) released: Mutex<Vec<usize>>,
}

/// Behaviour of handlers.
#[derive(Clone)]
pub(crate) enum Behaviour {
    /// End at once.
    Finish,
    /// Wait for a permit of the gate.
    Wait(Arc<Semaphore>),
    /// Panic for this number, end at once for others.
    PanicAt(usize),
}

pub(crate) struct Consumer {
    pub(crate) world: Arc<World>,
    pub(crate) publisher: WakeupPublisher,
    pub(crate) permits: Arc<Semaphore>,
    pub(crate) shutdown: CancellationToken,
    pub(crate) running: JoinHandle<Result<(), QueueError>>,
}

impl Consumer {
    pub(crate) fn start(options: &QueueOptions, permits: usize, behaviour: Behaviour) -> Self {
        Self::with(ConsumerConfig::new(options.clone(), vec![queue("default")]), permits, behaviour, World::default())
    }

    pub(crate) fn with(config: ConsumerConfig, permits: usize, behaviour: Behaviour, world: World) -> Self {
        let world = Arc::new(world);
        let publisher = WakeupPublisher::start(&config.redis).unwrap();
        let permits = Arc::new(Semaphore::new(permits));
        let shutdown = CancellationToken::new();
        let (claiming, releasing, handling) = (Arc::clone(&world), Arc::clone(&world), Arc::clone(&world));
        let running = tokio::spawn(consumer::run(
            config,
            Arc::clone(&permits),
            move |room| std::future::ready(claiming.claim(room)),
            move |items| {
                releasing.released.lock().unwrap().extend(items);
                std::future::ready(())
            },
            move |item, permit| {
                let handled = Arc::clone(&handling).handle(item, behaviour.clone());
                async move {
                    handled.await;
                    drop(permit);
                }
            },
            shutdown.clone(),
        ));
        Self { world, publisher, permits, shutdown, running }
    }

    /// Makes `count` numbers due and publishes wake-ups.
    pub(crate) fn submit(&self, count: usize) {
        self.add_due(count);
        self.publisher.publish(&queue("default"), Uuid::now_v7(), count);
    }

    /// Makes `count` numbers due without a wake-up.
    pub(crate) fn add_due(&self, count: usize) {
        self.world.due.lock().unwrap().extend(0..count);
    }

    pub(crate) async fn until(&self, what: &str, condition: impl Fn(&World) -> bool) {
        eventually(what, || format!("{:?}", self.world), async || condition(&self.world)).await;
    }

    pub(crate) async fn stop(self) -> Result<(), QueueError> {
        self.shutdown.cancel();
        wait::within("the consumer ends", wait::SOON, self.running).await.unwrap()
    }
}

impl World {
    fn claim(&self, room: Room) -> Fetched<usize> {
        let items: Vec<_> = match room {
            Room::Open(max) => {
                assert!(max > 0, "a claim of nothing");
                let mut due = self.due.lock().unwrap();
                let taken = max.min(due.len());
                due.drain(..taken).collect()
            }
            Room::Kept => {
                self.looks.fetch_add(1, SeqCst);
                let Some(newcomer) = self.newcomers.lock().unwrap().pop_front() else { return Fetched::nothing() };
                vec![newcomer]
            }
        };
        self.claims.fetch_add(1, SeqCst);
        self.claimed.fetch_add(items.len(), SeqCst);
        if items.is_empty() {
            self.empty_claims.fetch_add(1, SeqCst);
        }
        items.into()
    }

    async fn handle(self: Arc<Self>, item: usize, behaviour: Behaviour) {
        let now_running = self.running.fetch_add(1, SeqCst) + 1;
        self.most_running.fetch_max(now_running, SeqCst);
        let mut end = End { world: Arc::clone(&self), finished: false };
        match behaviour {
            Behaviour::Finish => {}
            Behaviour::Wait(gate) => gate.acquire().await.unwrap().forget(),
            Behaviour::PanicAt(bad) => assert!(item != bad, "asked to panic"),
        }
        end.finished = true;
    }
}

/// Counts the end of a handler, finished or aborted.
struct End {
    world: Arc<World>,
    finished: bool,
}

impl Drop for End {
    fn drop(&mut self) {
        self.world.running.fetch_sub(1, SeqCst);
        let ended = if self.finished { &self.world.finished } else { &self.world.aborted };
        ended.fetch_add(1, SeqCst);
    }
}
