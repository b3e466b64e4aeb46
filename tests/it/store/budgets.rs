//! Core-rules 13: every reservation is settled, charged or freed, even if its worker dies; returned money wakes the
//! executions that wait for it; no tree blocks another.
//!
//! The file is long because all its tests share one tree and one helper that reserves for it.

use futures::future::join_all;
use longhaul_domain::{ExecutionId, WaitReason};
use longhaul_sdk::Usd;
use longhaul_sdk::spec::{BudgetSpec, OnExhausted};
use longhaul_store::executions::budgets::{Amounts, CallPrice, Caps, Ledger, Reservation, Reserved, Settlement};
use longhaul_store::executions::claims::Claimed;
use longhaul_store::history::journal::{Hash, StepKind::Turn};
use longhaul_store::tenants::scope::TenantScope;
use longhaul_store::{Store, StoreOptions};
use sha2::{Digest, Sha256};

use crate::support::leases::{Conclusion, TestWorker, World, end_overdue, step, write};
use crate::support::wait::{SOON, eventually, within};

const DOLLAR: i64 = 1_000_000_000;

fn calls(max: u32) -> BudgetSpec {
    BudgetSpec { max_model_calls: Some(max), ..BudgetSpec::default() }
}

fn money(text: &str) -> BudgetSpec {
    BudgetSpec { max_cost_usd: Some(text.parse().unwrap()), ..BudgetSpec::default() }
}

async fn submit(world: &World, budget: BudgetSpec) -> ExecutionId {
    let mut execution = world.new_execution().await;
    execution.budget = Some(budget);
    let id = execution.id;
    world.store.submit_executions(&[execution.into()]).await.unwrap();
    id
}

fn key(text: &str) -> Hash {
    Sha256::digest(text).into()
}

fn reservation(claimed: &Claimed, step: &str, dollars: i64) -> Reservation {
    Reservation {
        id: claimed.id,
        token: claimed.token,
        step_key: key(step),
        price: Some(CallPrice { prompt: Usd::from_nanos(dollars * DOLLAR), reply: Usd::ZERO }),
        prompt_tokens: 90,
        reply_tokens: 10,
        least_reply_tokens: 10,
        may_wait: true,
    }
}

const GRANTED: Reserved = Reserved::Granted { reply_tokens: 10 };

async fn reserve(worker: &TestWorker, claimed: &Claimed, step: &str, dollars: i64) -> Reserved {
    worker.writer.reserve(reservation(claimed, step, dollars)).await.unwrap()
}

/// Records the reserved step with its actual cost, and folds the budget.
async fn settle(worker: &TestWorker, claimed: &Claimed, number: i32, name: &str, dollars: i64) {
    let cost = Some(Usd::from_nanos(dollars * DOLLAR));
    let mut step = step(number, Turn, name);
    step.usage.cost = cost;
    let mut write = write(claimed, number, vec![step]);
    write.settlements = vec![Settlement { step_key: key(name), cost, tokens: 60, calls: 1, is_estimate: false }];
    worker.record(write).await.unwrap();
    worker.writer.fold_budget(claimed.root).await.unwrap();
}

async fn ledger(world: &World, id: ExecutionId) -> Ledger {
    world.store.read_budget(&TenantScope::from(world.tenant), id).await.unwrap().unwrap()
}

fn park(wake_seq: i32) -> Conclusion {
    Conclusion::Park { reason: WaitReason::Budget, wait: None, wake_seq }
}

fn waiting(reserved: Reserved) -> i32 {
    match reserved {
        Reserved::Waiting { wake_seq } => wake_seq,
        other => panic!("{other:?}"),
    }
}

/// Fails if a reservation is left or a budget still has a reserved amount.
async fn nothing_is_reserved(world: &World) {
    world.store.fold_budgets(None, 1_000).await.unwrap();
    let left: (i64, i64) = sqlx::query_as(
        "select (select count(*) from reservations),
            (select count(*) from budgets where reserved_cost <> 0 or reserved_tokens <> 0 or reserved_calls <> 0)",
    )
    .fetch_one(world.pool())
    .await
    .unwrap();
    assert_eq!(left, (0, 0), "reservations, budgets that hold some");
    world.check().await;
}

#[tokio::test]
async fn budget_for_ten_calls_parks_others_until_raised() {
    let world = World::create().await;
    let worker = world.worker().await;
    let root = submit(&world, calls(10)).await;
    let parent = worker.claim_one().await;
    worker.spawn(&parent, 0..50).await;
    let children = worker.claim(50).await;
    let asked = join_all(children.iter().map(|child| reserve(&worker, child, "turn", 1))).await;
    let granted: Vec<_> = children.iter().zip(&asked).filter(|(_, reserved)| **reserved == GRANTED).collect();
    assert_eq!(granted.len(), 10);
    for (child, reserved) in children.iter().zip(&asked) {
        if let Reserved::Waiting { wake_seq } = reserved {
            worker.end(child, park(*wake_seq)).await.unwrap();
        }
    }
    for (child, _) in granted {
        settle(&worker, child, 1, "turn", 1).await;
        worker.finish(child).await.unwrap();
    }
    assert!(worker.claim(50).await.is_empty(), "forty wait");
    let before = ledger(&world, root).await;
    assert_eq!((before.spent.calls, before.reserved.calls, before.waiting), (10, 0, 40));
    assert_eq!(world.store.waiting().await.unwrap().iter().find(|(of, _)| *of == WaitReason::Budget).unwrap().1, 40);
    let raised = world.store.raise_budget(root, Caps { max_calls: Some(50), ..Caps::default() }).await.unwrap();
    assert_eq!(raised.len(), 40);
    let rest = worker.claim(50).await;
    assert_eq!(rest.len(), 40);
    for child in &rest {
        assert_eq!(reserve(&worker, child, "turn", 1).await, GRANTED);
        settle(&worker, child, 1, "turn", 1).await;
        worker.finish(child).await.unwrap();
    }
    worker.finish(&parent).await.unwrap();
    nothing_is_reserved(&world).await;
    let spent = Amounts { cost: Usd::from_nanos(50 * DOLLAR), tokens: 50 * 60, calls: 50 };
    assert_eq!(ledger(&world, root).await.spent, spent);
}

#[tokio::test]
async fn raise_around_a_park_always_wakes_it() {
    let world = World::create().await;
    let worker = world.worker().await;
    for when in ["before", "within", "after"] {
        let root = submit(&world, calls(0)).await;
        let claimed = worker.claim_one().await;
        let wake_seq = waiting(reserve(&worker, &claimed, "turn", 1).await);
        let raise = world.store.raise_budget(root, Caps { max_calls: Some(1), ..Caps::default() });
        match when {
            "before" => {
                assert_eq!(raise.await.unwrap().len(), 1);
                let parked = worker.end(&claimed, park(wake_seq)).await.unwrap();
                assert_eq!(parked.wait_reason, Some(WaitReason::Worker));
            }
            "within" => {
                let (parked, raised) = tokio::join!(worker.end(&claimed, park(wake_seq)), raise);
                parked.unwrap();
                assert_eq!(raised.unwrap().len(), 1);
            }
            _ => {
                let parked = worker.end(&claimed, park(wake_seq)).await.unwrap();
                assert_eq!(parked.wait_reason, Some(WaitReason::Budget));
                assert_eq!(raise.await.unwrap()[0].id, root);
            }
        }
        assert_eq!(world.standing(root).await.1.as_deref(), Some("worker"), "{when}");
        let again = worker.claim_one().await;
        assert_eq!(reserve(&worker, &again, "turn", 1).await, GRANTED, "{when}");
        assert!(world.events(root).await.contains(&"budget_raised".to_owned()));
        settle(&worker, &again, 1, "turn", 1).await;
        worker.finish(&again).await.unwrap();
        nothing_is_reserved(&world).await;
    }
}

#[tokio::test]
async fn raise_waits_for_uncommitted_park_and_wakes_it() {
    let world = World::create().await;
    let worker = world.worker().await;
    let root = submit(&world, calls(0)).await;
    let claimed = worker.claim_one().await;
    waiting(reserve(&worker, &claimed, "turn", 1).await);
    // The row as an uncommitted park has it: locked, not yet written.
    let mut lock = world.pool().begin().await.unwrap();
    sqlx::query("select id from executions where id = $1 for update").bind(root.0).fetch_one(&mut *lock).await.unwrap();
    let store = world.store.clone();
    let caps = Caps { max_calls: Some(1), ..Caps::default() };
    let raising = tokio::spawn(async move { store.raise_budget(root, caps).await });
    eventually("the raise waits for the park", SOON, async || {
        let waits: i64 = sqlx::query_scalar(
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()",
        )
        .fetch_one(world.pool())
        .await
        .unwrap();
        if waits > 0 { Ok(()) } else { Err("nobody waits for a lock") }
    })
    .await;
    for sql in [
        "update executions set wait_reason = 'budget', worker_id = null, wait_until = deadline_at where id = $1",
        "insert into parked select id, tenant_id, 'budget', deadline_at from executions where id = $1",
    ] {
        sqlx::query(sql).bind(root.0).execute(&mut *lock).await.unwrap();
    }
    lock.commit().await.unwrap();
    assert_eq!(raising.await.unwrap().unwrap()[0].id, root);
    assert_eq!(world.standing(root).await.1.as_deref(), Some("worker"));
    world.check().await;
}

/// A tree with a cap of one dollar: the parent has reserved it, and the child is parked for it.
async fn parent_and_waiting_child(world: &World, worker: &TestWorker) -> (Claimed, Claimed) {
    submit(world, money("1")).await;
    let parent = worker.claim_one().await;
    worker.spawn(&parent, 0..1).await;
    let child = worker.claim_one().await;
    assert_eq!(reserve(worker, &parent, "turn", 1).await, GRANTED);
    let wake_seq = waiting(reserve(worker, &child, "turn", 1).await);
    worker.end(&child, park(wake_seq)).await.unwrap();
    (parent, child)
}

/// Locks the child and then its parent, as a cancel of the child does. `act` runs between the two locks and must
/// neither wait nor block the cancel.
async fn within_a_cancel<T>(world: &World, parent: &Claimed, child: &Claimed, act: impl Future<Output = T>) -> T {
    let lock = "select from executions where id = $1 for no key update";
    let mut cancel = world.pool().begin().await.unwrap();
    sqlx::query(lock).bind(child.id.0).execute(&mut *cancel).await.unwrap();
    let done = within("what is done while the child is locked", SOON, act).await;
    sqlx::query(lock).bind(parent.id.0).execute(&mut *cancel).await.unwrap();
    cancel.rollback().await.unwrap();
    done
}

async fn folded(world: &World) -> Vec<ExecutionId> {
    world.store.fold_budgets(None, 10).await.unwrap().0.into_iter().map(|woken| woken.id).collect()
}

#[tokio::test]
async fn fold_leaves_a_locked_child_for_the_next() {
    let world = World::create().await;
    let worker = world.worker().await;
    let (parent, child) = parent_and_waiting_child(&world, &worker).await;
    within_a_cancel(&world, &parent, &child, settle(&worker, &parent, 1, "turn", 0)).await;
    assert_eq!(ledger(&world, parent.id).await.waiting, 1);
    assert_eq!(folded(&world).await, [child.id]);
    assert_eq!(world.standing(child.id).await.1.as_deref(), Some("worker"));
}

#[tokio::test]
async fn raise_leaves_a_locked_child_for_the_next_fold() {
    let world = World::create().await;
    let worker = world.worker().await;
    let (parent, child) = parent_and_waiting_child(&world, &worker).await;
    let caps = Caps { max_cost: Some("2".parse().unwrap()), ..Caps::default() };
    let raised = within_a_cancel(&world, &parent, &child, world.store.raise_budget(parent.id, caps)).await.unwrap();
    assert!(raised.is_empty());
    assert_eq!(folded(&world).await, [child.id]);
    assert_eq!(world.standing(child.id).await.1.as_deref(), Some("worker"));
}

#[tokio::test]
async fn returned_money_wakes_waiters_in_order_of_asking() {
    let world = World::create().await;
    let worker = world.worker().await;
    let root = submit(&world, money("10")).await;
    let parent = worker.claim_one().await;
    worker.spawn(&parent, 0..4).await;
    let children = worker.claim(4).await;
    assert_eq!(reserve(&worker, &children[0], "turn", 9).await, GRANTED);
    for child in &children[1..] {
        let wake_seq = waiting(reserve(&worker, child, "turn", 3).await);
        worker.end(child, park(wake_seq)).await.unwrap();
    }
    settle(&worker, &children[0], 1, "turn", 2).await;
    let woken = worker.claim(10).await;
    let ids = |claims: &[Claimed]| claims.iter().map(|claimed| claimed.id).collect::<Vec<_>>();
    assert_eq!(ids(&woken), ids(&children[1..3]), "eight came back: two of three at three dollars");
    let ledger = ledger(&world, root).await;
    assert_eq!((ledger.spent.cost.nanos(), ledger.reserved.cost.nanos()), (2 * DOLLAR, 6 * DOLLAR));
    settle(&worker, &woken[0], 1, "turn", 3).await;
    assert!(worker.claim(10).await.is_empty(), "nothing came back");
    // An execution that was granted money and ends without reserving again returns it.
    worker.finish(&woken[1]).await.unwrap();
    worker.writer.fold_budget(root).await.unwrap();
    assert_eq!(ids(&worker.claim(10).await), ids(&children[3..]));
    world.check().await;
}

#[tokio::test]
async fn end_frees_unused_money_and_charges_possible_calls() {
    let world = World::create().await;
    let worker = world.worker().await;
    for how in ["finish", "cancel", "crash", "deadline"] {
        let root = submit(&world, money("3")).await;
        let parent = worker.claim_one().await;
        worker.spawn(&parent, 0..3).await;
        let mut children = worker.claim(3).await;
        let (taken, granted, waits) = (children.remove(0), children.remove(0), children.remove(0));
        assert_eq!(reserve(&worker, &taken, "turn", 2).await, GRANTED);
        let wake_seq = waiting(reserve(&worker, &granted, "turn", 2).await);
        worker.end(&granted, park(wake_seq)).await.unwrap();
        let wake_seq = waiting(reserve(&worker, &waits, "turn", 2).await);
        worker.end(&waits, park(wake_seq)).await.unwrap();
        world.store.raise_budget(root, Caps { max_cost: Some("4".parse().unwrap()), ..Caps::default() }).await.unwrap();
        assert_eq!(ledger(&world, root).await.waiting, 1, "one was granted and did not take it yet");
        match how {
            "finish" => drop(worker.finish(&taken).await.unwrap()),
            "cancel" => {
                world.store.cancel_execution(world.tenant, taken.id).await.unwrap();
                worker.end(&taken, Conclusion::Cancel).await.unwrap();
            }
            "crash" => {
                let doomed = world.worker().await;
                worker.end(&taken, Conclusion::Release { drained: false }).await.unwrap();
                let held = doomed.claim(10).await;
                assert!(held.iter().any(|claimed| claimed.id == taken.id));
                world.store.cancel_execution(world.tenant, taken.id).await.unwrap();
                doomed.die().await;
                world.store.reap(10).await.unwrap();
            }
            _ => {
                sqlx::query("update executions set active_until = active_until - interval '2 hours' where id = $1")
                    .bind(taken.id.0)
                    .execute(world.pool())
                    .await
                    .unwrap();
                assert_eq!(end_overdue(&world.store, std::time::Duration::ZERO).await, [taken.id]);
            }
        }
        for id in [granted.id, waits.id, root] {
            world.store.cancel_execution(world.tenant, id).await.unwrap();
        }
        worker.end(&parent, Conclusion::Cancel).await.unwrap();
        nothing_is_reserved(&world).await;
        let over = ledger(&world, root).await;
        assert_eq!((over.spent.calls, over.estimated_calls, over.spent.cost.nanos()), (1, 1, 2 * DOLLAR), "{how}");
    }
}

/// Runs `act` for all claims concurrently.
async fn each<T, F: Future<Output = T>>(claims: &[Claimed], act: impl Fn(usize) -> F) -> Vec<T> {
    join_all((0..claims.len()).map(act)).await
}

#[tokio::test]
async fn thousand_kills_leave_no_reservation_or_free_call() {
    const POINTS: [&str; 3] = ["reserve", "call", "settle"];
    const AT_ONCE: usize = 30;
    let world = World::create().await;
    let (mut made, mut spent, mut deaths) = (0, 0, 0);
    while deaths < 1_000 {
        let mut roots = Vec::new();
        for _ in 0..AT_ONCE {
            roots.push(submit(&world, BudgetSpec { max_tokens: Some(1_000_000), ..BudgetSpec::default() }).await);
        }
        // Each execution dies twice; `point` covers all pairs of points.
        for life in 0..2_u32 {
            let worker = world.worker().await;
            let mut claims = worker.claim(AT_ONCE as i32).await;
            assert_eq!(claims.len(), AT_ONCE);
            claims.sort_by_key(|claimed| roots.iter().position(|root| *root == claimed.id));
            let point = |at: usize| POINTS[at / 3_usize.pow(life) % 3];
            let reserved = each(&claims, |at| reserve(&worker, &claims[at], "turn", 1)).await;
            assert!(reserved.iter().all(|reserved| *reserved == GRANTED), "{reserved:?}");
            made += (0..AT_ONCE).filter(|at| point(*at) != "reserve").count() as i64;
            // The worker is declared dead first, so its late writes are refused.
            worker.die().await;
            let settled = each(&claims, async |at| {
                if point(at) == "settle" {
                    let mut step = write(&claims[at], 1, vec![step(1, Turn, "turn")]);
                    step.settlements =
                        vec![Settlement { step_key: key("turn"), cost: None, tokens: 1, calls: 1, is_estimate: false }];
                    assert!(worker.record(step).await.is_err());
                }
            });
            settled.await;
            while !world.store.reap(AT_ONCE as i64).await.unwrap().is_empty() {}
            deaths += AT_ONCE;
        }
        let worker = world.worker().await;
        let claims = worker.claim(AT_ONCE as i32).await;
        assert_eq!(claims.len(), AT_ONCE);
        each(&claims, async |at| {
            let claimed = &claims[at];
            assert_eq!(reserve(&worker, claimed, "turn", 1).await, GRANTED);
            assert_eq!(reserve(&worker, claimed, "turn", 1).await, GRANTED, "asked again, reserved once");
            settle(&worker, claimed, 1, "turn", 1).await;
            worker.finish(claimed).await.unwrap();
        })
        .await;
        made += AT_ONCE as i64;
        for root in roots {
            let ledger = ledger(&world, root).await;
            assert_eq!(ledger.reserved.calls, 0);
            spent += ledger.spent.calls;
        }
    }
    assert!(spent >= made, "spent {spent}, made {made}");
    nothing_is_reserved(&world).await;
}

/// Takes one execution through the steps `numbers`, each reserved, settled and recorded. Fails if a statement of its
/// worker waits for a lock.
async fn steps_without_a_lock_wait(
    world: &World,
    worker: &TestWorker,
    claimed: &Claimed,
    numbers: std::ops::Range<i32>,
) {
    for number in numbers {
        let name = format!("turn {number}");
        let steps = async {
            assert_eq!(reserve(worker, claimed, &name, 1).await, GRANTED);
            settle(worker, claimed, number, &name, 1).await;
        };
        let watch = async {
            loop {
                // Ignores `extend`: a session that adds a page to a table locks the table briefly.
                let waits: i64 = sqlx::query_scalar(
                    "select count(*) from pg_stat_activity
                     where application_name = 'stranger' and wait_event_type = 'Lock' and wait_event <> 'extend'",
                )
                .fetch_one(world.pool())
                .await
                .unwrap();
                assert_eq!(waits, 0, "a statement of the other tree waits for a lock");
            }
        };
        tokio::select! {
            () = steps => {}
            () = watch => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn thousand_children_do_not_delay_another_tree() {
    const CHILDREN: u16 = 1_000;
    let world = World::create().await;
    let worker = world.worker().await;
    let crowded = submit(&world, calls(10_000)).await;
    let parent = worker.claim_one().await;
    for hundred in 0..CHILDREN / 100 {
        worker.spawn(&parent, hundred * 100..(hundred + 1) * 100).await;
    }
    let children = worker.claim(CHILDREN.into()).await;
    assert_eq!(children.len(), usize::from(CHILDREN));
    // A store of its own, so that Postgres shows the sessions of the other tree under another name.
    let options = StoreOptions { application_name: "stranger".into(), ..StoreOptions::new(world.db.url.clone()) };
    let other = TestWorker::start(&Store::open(options).unwrap()).await;
    submit(&world, calls(500)).await;
    let stranger = other.claim_one().await;
    // Another transaction holds the row of the crowded tree's budget.
    let mut lock = world.pool().begin().await.unwrap();
    sqlx::query("select root_id from budgets where root_id = $1 for update")
        .bind(crowded.0)
        .fetch_one(&mut *lock)
        .await
        .unwrap();
    let writer = worker.writer.clone();
    let asked: Vec<_> = children.iter().map(|child| reservation(child, "turn", 1)).collect();
    let crowd = tokio::spawn(async move { join_all(asked.into_iter().map(|one| writer.reserve(one))).await });
    steps_without_a_lock_wait(&world, &other, &stranger, 1..21).await;
    // Recording a step of the crowded tree does not need the budget's row either.
    worker.record(write(&children[0], 1, vec![step(1, Turn, "x")])).await.unwrap();
    assert!(!crowd.is_finished());
    lock.rollback().await.unwrap();
    let granted = crowd.await.unwrap();
    assert!(granted.into_iter().all(|reserved| reserved.unwrap() == GRANTED));
    assert_eq!(ledger(&world, crowded).await.reserved.calls, i64::from(CHILDREN));
    // All children settle at once while the other tree goes on with its own writer.
    let settling = join_all(children[1..].iter().map(|child| settle(&worker, child, 1, "turn", 1)));
    let (_, ()) = tokio::join!(settling, steps_without_a_lock_wait(&world, &other, &stranger, 21..61));
    other.finish(&stranger).await.unwrap();
    let over = ledger(&world, crowded).await;
    assert_eq!((over.spent.calls, over.reserved.calls), (i64::from(CHILDREN) - 1, 1));
}

#[tokio::test]
async fn exhausted_fail_budget_queues_no_waiter() {
    let world = World::create().await;
    let worker = world.worker().await;
    let root = submit(&world, BudgetSpec { on_exhausted: OnExhausted::Fail, ..calls(1) }).await;
    let claimed = worker.claim_one().await;
    assert_eq!(reserve(&worker, &claimed, "first", 1).await, GRANTED);
    assert_eq!(reserve(&worker, &claimed, "second", 1).await, Reserved::Exhausted);
    assert_eq!(ledger(&world, root).await.waiting, 0);
    world.store.cancel_execution(world.tenant, root).await.unwrap();
    assert_eq!(reserve(&worker, &claimed, "third", 1).await, Reserved::Cancelled);
    worker.end(&claimed, Conclusion::Cancel).await.unwrap();
    nothing_is_reserved(&world).await;
}

#[tokio::test]
async fn call_without_price_counts_as_uncosted() {
    let world = World::create().await;
    let worker = world.worker().await;
    let root = submit(&world, calls(5)).await;
    let claimed = worker.claim_one().await;
    let unpriced = Reservation { price: None, ..reservation(&claimed, "turn", 0) };
    assert_eq!(worker.writer.reserve(unpriced).await.unwrap(), GRANTED);
    let mut step = write(&claimed, 1, vec![step(1, Turn, "turn")]);
    step.settlements = vec![Settlement { step_key: key("turn"), cost: None, tokens: 7, calls: 1, is_estimate: false }];
    worker.record(step).await.unwrap();
    let ledger = ledger(&world, root).await;
    assert_eq!((ledger.uncosted_calls, ledger.spent.tokens, ledger.spent.cost), (1, 7, Usd::ZERO));
    let shown = world.store.get_execution(&TenantScope::from(world.tenant), root).await.unwrap().unwrap().summary;
    assert_eq!((shown.uncosted_turns, shown.cost), (1, Usd::ZERO));
}

#[tokio::test]
async fn reply_limit_is_lowered_to_remaining_budget() {
    let world = World::create().await;
    let worker = world.worker().await;
    let root = submit(&world, money("10")).await;
    let parent = worker.claim_one().await;
    worker.spawn(&parent, 0..2).await;
    let children = worker.claim(2).await;
    // One dollar for the prompt, and one dollar per token of the reply.
    let price = Some(CallPrice { prompt: Usd::from_nanos(DOLLAR), reply: Usd::from_nanos(1_000_000 * DOLLAR) });
    let ask = |at: usize, may_wait| Reservation {
        price,
        reply_tokens: 100,
        least_reply_tokens: 5,
        may_wait,
        ..reservation(&children[at], "turn", 1)
    };
    let granted = worker.writer.reserve(ask(0, true)).await.unwrap();
    assert_eq!(granted, Reserved::Granted { reply_tokens: 9 });
    assert_eq!(worker.writer.reserve(ask(0, true)).await.unwrap(), granted, "asked again, the same limit");
    assert_eq!(worker.writer.reserve(ask(1, false)).await.unwrap(), Reserved::Short);
    assert_eq!(ledger(&world, root).await.waiting, 0, "what may not wait leaves nothing");
    let wake_seq = waiting(worker.writer.reserve(ask(1, true)).await.unwrap());
    worker.end(&children[1], park(wake_seq)).await.unwrap();
    let raise = |dollars| Caps { max_cost: Some(Usd::from_nanos(dollars * DOLLAR)), ..Caps::default() };
    assert!(world.store.raise_budget(root, raise(15)).await.unwrap().is_empty(), "a limit of four is of no use");
    assert_eq!(world.store.raise_budget(root, raise(16)).await.unwrap().len(), 1);
    let again = worker.claim_one().await;
    let granted = Reservation { token: again.token, ..ask(1, true) };
    assert_eq!(worker.writer.reserve(granted).await.unwrap(), Reserved::Granted { reply_tokens: 5 });
    let ledger = ledger(&world, root).await;
    assert_eq!((ledger.reserved.cost, ledger.reserved.tokens), (Usd::from_nanos(16 * DOLLAR), 2 * 90 + 9 + 5));
}

#[tokio::test]
async fn retaken_call_keeps_its_reply_limit() {
    let world = World::create().await;
    let first = world.worker().await;
    let root = submit(&world, BudgetSpec { max_tokens: Some(150), ..BudgetSpec::default() }).await;
    let ask = |claimed: &Claimed| Reservation {
        reply_tokens: 100,
        least_reply_tokens: 20,
        ..reservation(claimed, "turn", 0)
    };
    let claimed = first.claim_one().await;
    assert_eq!(first.writer.reserve(ask(&claimed)).await.unwrap(), Reserved::Granted { reply_tokens: 60 });
    first.expire().await;
    first.die().await;
    while !world.store.reap(10).await.unwrap().is_empty() {}
    let second = world.worker().await;
    let claimed = second.claim_one().await;
    let tokens = |tokens| Caps { max_tokens: Some(tokens), ..Caps::default() };
    waiting(second.writer.reserve(ask(&claimed)).await.unwrap());
    world.store.raise_budget(root, tokens(299)).await.unwrap();
    waiting(second.writer.reserve(ask(&claimed)).await.unwrap());
    world.store.raise_budget(root, tokens(300)).await.unwrap();
    assert_eq!(second.writer.reserve(ask(&claimed)).await.unwrap(), Reserved::Granted { reply_tokens: 60 });
}

#[tokio::test]
async fn charge_above_its_reservation_is_over_limit() {
    let world = World::create().await;
    let worker = world.worker().await;
    let root = submit(&world, money("10")).await;
    let claimed = worker.claim_one().await;
    assert_eq!(reserve(&worker, &claimed, "first", 2).await, GRANTED);
    assert_eq!(reserve(&worker, &claimed, "second", 2).await, GRANTED);
    let settlement = |name, dollars, tokens| Settlement {
        step_key: key(name),
        cost: Some(Usd::from_nanos(dollars * DOLLAR)),
        tokens,
        calls: 1,
        is_estimate: false,
    };
    let mut write = write(&claimed, 1, vec![step(1, Turn, "first")]);
    write.settlements = vec![settlement("first", 5, 100), settlement("second", 1, 130)];
    worker.record(write).await.unwrap();
    let expected = Amounts { cost: Usd::from_nanos(3 * DOLLAR), tokens: 30, calls: 2 };
    assert_eq!(ledger(&world, root).await.over_limit, expected, "before it is folded");
    worker.writer.fold_budget(claimed.root).await.unwrap();
    assert_eq!(ledger(&world, root).await.over_limit, expected);
}
