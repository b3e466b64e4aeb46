//! Random walks of the model of the core (`model/`) against the store: the real statements carry out each action, and
//! then the rows must equal the model's state. Actions run one at a time; the model's own tests cover overlap.

mod rows;
mod sessions;
mod walk;

use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use longhaul_model::{Broken, Scenario, Work};

use walk::Walk;

/// Everything that the model and the store share, in one world, with room for many mishaps.
fn busy(seed: u64) -> Scenario {
    let work = vec![
        Work::Plain(3),
        Work::Asks,
        Work::Spawns(3),
        Work::Child(2),
        Work::Pays,
        Work::Plain(3),
        Work::Spawns(7),
        Work::Child(6),
        Work::Plain(2),
        Work::Limited,
        Work::Limited,
        Work::Limited,
    ];
    Scenario {
        statements: 1,
        ends_in_one_commit: true,
        expiries: 5,
        losses: 20,
        cancels: 3,
        releases: 9,
        retries: 12,
        raises: 1,
        // Under a cap of one unit no call fits until the cap is raised; under three, one does.
        cap: if seed.is_multiple_of(2) { 1 } else { 3 },
        slots: 1,
        ..Scenario::new("walk", work)
    }
}

/// Walks until no action is possible. Returns the number of actions.
async fn walk(scenario: Scenario, seed: u64) -> usize {
    let mut walk = Walk::start(scenario, seed).await;
    while walk.step().await {}
    let actions = walk.len();
    walk.end().await;
    actions
}

#[tokio::test]
async fn store_matches_the_model_on_fixed_walks() {
    let mut actions = 0;
    for seed in 1..=6 {
        actions += walk(busy(seed), seed).await;
    }
    assert!(actions > 600, "only {actions} actions");
}

/// A random seed each time, to reach paths that the fixed seeds miss. The message of a failure holds the seed.
#[tokio::test]
async fn store_matches_the_model_on_random_walk() {
    let seed = uuid::Uuid::new_v4().as_u64_pair().0;
    walk(busy(seed), seed).await;
}

/// Models without a rule that the store keeps: a walk must find the difference.
#[tokio::test]
async fn walk_detects_a_model_without_a_rule() {
    // Each with the first seed that shows it, of 1 to 20.
    for (broken, first) in
        [(Broken::ParkIgnoresCancel, 12), (Broken::BlindPark, 1), (Broken::CountedSlots, 1), (Broken::WriteThenEnd, 1)]
    {
        let mut seeds = first..=20;
        let is_seen = async |seed| {
            let scenario = Scenario { broken: Some(broken), ..busy(seed) };
            let Err(panic) = AssertUnwindSafe(walk(scenario, seed)).catch_unwind().await else { return false };
            panic.downcast_ref::<String>().is_some_and(|message| message.contains("differ"))
        };
        loop {
            let Some(seed) = seeds.next() else { panic!("{broken:?} was never seen") };
            if is_seen(seed).await {
                println!("{broken:?} is seen with seed {seed}");
                break;
            }
        }
    }
}
