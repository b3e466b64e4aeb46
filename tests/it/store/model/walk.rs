//! One walk: the model chooses, the store follows. The file is long because each statement has one arm on either
//! side, to be read together.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::{ApiKeyId, ExecutionId, HumanRequestId, LimitKey, RequestKind, RequestState, WaitReason};
use longhaul_model::machine::{Action, Machine};
use longhaul_model::rows::{State, Wait};
use longhaul_model::scenario::{COST, ESTIMATE, Scenario, Work};
use longhaul_model::statement::{Ending, LeaseName, Phase, Reply, Running, Statement, Verb, Write};
use longhaul_sdk::Usd;
use longhaul_sdk::spec::{BudgetSpec, OnExhausted};
use longhaul_store::StoreError;
use longhaul_store::executions::budgets::{CallPrice, Caps, Reservation, Reserved, Settlement};
use longhaul_store::executions::children::SpawnRefused;
use longhaul_store::executions::claims::Claimed;
use longhaul_store::executions::control::Cancelled;
use longhaul_store::fleet::workers::{HeartbeatConnection, Renewal};
use longhaul_store::history::journal::{JournalWrite, StepKind::Turn};
use longhaul_store::human_requests::{Decider, NewDecision, NewHumanRequest, Verdict, call_hash};
use serde_json::json;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::rows::{self, UNIT, modelled, modelled_budget, payer, stored, stored_budget};
use crate::support::leases::{ROOMY, TestWorker, World, bury, step, transient, write};

/// Crash count that no expiry may bring an execution to: the model knows neither suspects nor quarantine.
const MAX_CRASHES: i16 = 2;

pub(crate) struct Walk {
    seed: u64,
    random: u64,
    machine: Machine,
    state: State,
    taken: Vec<String>,
    world: World,
    workers: Vec<TestWorker>,
    /// By the model's numbers; `None` for a child that is not spawned yet.
    ids: Vec<Option<ExecutionId>>,
    leases: HashMap<(u8, u8), Claimed>,
    request: Option<HumanRequestId>,
}

impl Walk {
    pub(crate) async fn start(scenario: Scenario, seed: u64) -> Self {
        let world = World::create().await;
        let limit = LimitKey::parse("metadata.walk").unwrap();
        world.store.put_limit(Some(world.tenant), &limit, scenario.slots.into()).await.unwrap();
        let mut ids = Vec::new();
        for work in &scenario.work {
            let mut execution = world.new_execution().await;
            if *work == Work::Limited {
                execution.metadata = json!({"walk": "limited"});
            }
            if *work == Work::Pays {
                let max_cost_usd = Some(Usd::from_nanos(i64::from(scenario.cap) * UNIT));
                execution.budget =
                    Some(BudgetSpec { max_cost_usd, on_exhausted: OnExhausted::Park, ..BudgetSpec::default() });
            }
            let id = execution.id;
            let is_child = matches!(work, Work::Child(_));
            if !is_child {
                world.store.submit_executions(&[execution.into()]).await.unwrap();
            }
            ids.push(Some(id).filter(|_| !is_child));
        }
        let mut workers = Vec::new();
        for _ in 0..scenario.processes {
            workers.push(world.worker().await);
        }
        let state = State::first(&scenario);
        Self {
            seed,
            random: seed,
            machine: Machine { scenario },
            state,
            taken: Vec::new(),
            world,
            workers,
            ids,
            leases: HashMap::new(),
            request: None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.taken.len()
    }

    /// Does one action in both worlds. Returns false if none is possible.
    pub(crate) async fn step(&mut self) -> bool {
        let mut actions = self.machine.possible(&self.state);
        let next = self.next_to_claim();
        actions.retain(|action| match action {
            // The store claims the oldest; the model allows any.
            Action::Begin(Statement::Claim { execution, .. }) => next == Some(*execution),
            _ => true,
        });
        while !actions.is_empty() {
            let choice = self.choose(actions.len());
            let action = actions[choice];
            let is_mishap = matches!(action, Action::Begin(Statement::Cancel { .. }) | Action::Expire { .. });
            // Mishaps are rare while other actions are possible; otherwise executions would end before they are
            // held.
            if is_mishap && actions.len() > 8 && self.choose(4) != 0 {
                continue;
            }
            actions.swap_remove(choice);
            if self.would_quarantine(action).await {
                continue;
            }
            self.taken.push(format!("{action:?}"));
            self.act(action).await;
            self.compare().await;
            return true;
        }
        false
    }

    /// Fails if an execution is stuck or the store's invariants do not hold.
    pub(crate) async fn end(self) {
        let is_over = |at: usize| {
            let at = u8::try_from(at).unwrap();
            !self.state.execution(at).is_open() || self.machine.may_wait(&self.state, at)
        };
        assert!((0..self.ids.len()).all(is_over), "{}", self.told("something is stuck"));
        self.world.check().await;
    }

    fn told(&self, what: &str) -> String {
        format!("seed {}: {what}, after\n    {}", self.seed, self.taken.join("\n    "))
    }

    /// splitmix64, so that the seed alone determines the walk.
    fn choose(&mut self, n: usize) -> usize {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % n as u64).unwrap()
    }

    fn id(&self, execution: u8) -> ExecutionId {
        self.ids[usize::from(execution)].unwrap_or_else(|| panic!("{}", self.told("it was never spawned")))
    }

    fn next_to_claim(&self) -> Option<u8> {
        self.in_turn(Wait::Worker).first().copied()
    }

    /// Executions with this wait in claim order: started before new, then the oldest.
    fn in_turn(&self, wait: Wait) -> Vec<u8> {
        let is_meant = |at: &u8| {
            let row = self.state.execution(*at);
            row.exists && row.wait == Some(wait)
        };
        let mut line: Vec<u8> = (0..u8::try_from(self.ids.len()).unwrap()).filter(is_meant).collect();
        line.sort_by_key(|&at| (self.state.execution(at).token == 0, self.id(at).0));
        line
    }

    async fn would_quarantine(&self, action: Action) -> bool {
        let Action::Expire { worker } = action else { return false };
        for (row, id) in self.state.executions.iter().zip(&self.ids) {
            if row.worker == Some(worker) && rows::crashes(self.world.pool(), id.unwrap().0).await >= MAX_CRASHES - 1 {
                return true;
            }
        }
        false
    }

    async fn act(&mut self, action: Action) {
        match action {
            Action::Begin(statement) => return self.carry_out(statement).await,
            Action::Expire { worker } => self.workers[usize::from(worker)].expire().await,
            Action::GiveUp { worker } => {
                let old = self.workers[usize::from(worker)].id;
                let mut heartbeat = HeartbeatConnection::new(&self.world.store);
                // A short lease, so that the server has been up for longer.
                let renewal = heartbeat.renew(old, Duration::from_millis(1), None, false).await;
                assert_eq!(renewal.unwrap(), Renewal::Dead, "{}", self.told("a worker id dies once"));
            }
            Action::StartOver { process } => {
                self.machine.apply(&mut self.state, action);
                if self.state.processes[process].identity.is_some() {
                    self.workers.push(self.world.worker().await);
                }
                return;
            }
            Action::Look { execution, .. } => {
                let children = self.world.store.children_of(self.id(execution)).await.unwrap();
                let is_open = children.iter().any(|child| !child.status.is_terminal());
                let expected = self.state.execution(execution).open_children > 0;
                assert_eq!(is_open, expected, "{}", self.told("children"));
            }
            Action::Hear { process, execution } => {
                let worker = self.state.processes[process].identity.unwrap();
                let worker = self.workers[usize::from(worker)].id;
                let leases = self.world.store.leases_of(worker, Duration::ZERO).await.unwrap();
                let lease = leases.iter().find(|lease| lease.id == self.id(execution));
                assert!(lease.is_some_and(|lease| lease.cancel_requested), "{}", self.told("a cancel is not heard"));
            }
            Action::Call { .. } => {}
            Action::Go(_)
            | Action::Deliver(_)
            | Action::Lose(_)
            | Action::Cut { .. }
            | Action::Outage
            | Action::Hang
            | Action::Steady => {
                panic!("{}", self.told("no such action in a walk"))
            }
        }
        self.machine.apply(&mut self.state, action);
    }

    async fn carry_out(&mut self, statement: Statement) {
        let (statement, answered) = self.expect(statement);
        let expected = answered.map(|running| match running.phase {
            Phase::Replied(reply) => reply,
            phase => panic!("{}", self.told(&format!("{phase:?} is no answer"))),
        });
        let got = self.ask(statement).await;
        assert_eq!(got, expected, "{}", self.told("the answers differ: the store's and the model's"));
        if let Some(running) = answered {
            let is_lost = self.state.left.losses > 0 && self.choose(6) == 0;
            if is_lost {
                self.taken.push("    its answer is lost".into());
            }
            self.machine.apply(&mut self.state, if is_lost { Action::Lose(running) } else { Action::Deliver(running) });
        }
        assert_eq!(self.state.wrong, None, "{}", self.told("the model itself went wrong"));
    }

    /// Applies the statement to the model, with all that the store does in the same call. Returns the statement that
    /// was answered in the end, and its answer.
    fn expect(&mut self, statement: Statement) -> (Statement, Option<Running>) {
        match statement {
            Statement::Claim { by, .. } => return self.expect_claim(by, statement),
            Statement::HandOver { .. } => {
                self.hand_over();
                return (statement, None);
            }
            _ => {}
        }
        let ended = statement.lease().filter(|lease| {
            matches!(statement, Statement::Conclude { .. })
                && self.machine.scenario.work[usize::from(lease.execution)] == Work::Limited
                && self.state.execution(lease.execution).worker == Some(lease.by)
        });
        let mut answered = None;
        for statement in self.together(statement) {
            answered = self.machine.carry_out(&mut self.state, statement);
        }
        // The end of a lease hands over the slots it freed.
        if ended.is_some_and(|lease| self.state.execution(lease.execution).worker != Some(lease.by)) {
            self.hand_over();
        }
        (statement, answered)
    }

    /// A claim parks candidates without a slot and looks at others, each time after a hand-over of free slots.
    fn expect_claim(&mut self, by: u8, first: Statement) -> (Statement, Option<Running>) {
        let (mut statement, mut answered) = (first, None);
        let mut candidates: Vec<u8> = first.execution().into_iter().collect();
        loop {
            let mut is_refused = false;
            for execution in candidates {
                let has_none = !self.state.slots.contains(&Some(execution));
                let is_held_back = self.machine.scenario.work[usize::from(execution)] == Work::Limited
                    && has_none
                    && (!self.in_turn(Wait::Slot).is_empty() || !self.state.slots.contains(&None));
                if answered.is_some() && !is_held_back {
                    continue;
                }
                let claim = Statement::Claim { by, execution };
                let came_to = self.go_through(claim);
                is_refused |= self.state.execution(execution).wait == Some(Wait::Slot);
                if came_to.is_some() {
                    (statement, answered) = (claim, came_to);
                }
            }
            if !is_refused {
                return (statement, answered);
            }
            self.hand_over();
            if answered.is_some() {
                return (statement, answered);
            }
            candidates = self.in_turn(Wait::Worker);
        }
    }

    /// Hands each free slot to the first waiter.
    fn hand_over(&mut self) {
        while self.state.slots.contains(&None)
            && let Some(&execution) = self.in_turn(Wait::Slot).first()
        {
            let _ = self.go_through(Statement::HandOver { execution });
        }
    }

    /// Like `carry_out`, but works while another answer is unread.
    fn go_through(&mut self, statement: Statement) -> Option<Running> {
        self.machine.apply(&mut self.state, Action::Begin(statement));
        while let Some(running) = self.state.running.iter().find(|one| one.statement == statement).copied() {
            if matches!(running.phase, Phase::Replied(_)) {
                return Some(running);
            }
            self.machine.apply(&mut self.state, Action::Go(running));
        }
        None
    }

    /// All possible statements of the same kind: the store's maintenance handles all that is due, the model one at a
    /// time.
    fn together(&self, statement: Statement) -> Vec<Statement> {
        let is_same = |other: &Statement| {
            matches!(
                (statement, other),
                (Statement::Bury { .. }, Statement::Bury { .. })
                    | (Statement::Reap { .. }, Statement::Reap { .. })
                    | (Statement::WakeDue { .. }, Statement::WakeDue { .. })
                    | (Statement::CancelChild { .. }, Statement::CancelChild { .. })
            )
        };
        let begins = self.machine.possible(&self.state).into_iter().filter_map(|action| match action {
            Action::Begin(other) => Some(other).filter(is_same),
            _ => None,
        });
        let all: Vec<Statement> = begins.collect();
        if all.is_empty() { vec![statement] } else { all }
    }

    /// Executes the real statement and maps its answer to the model's.
    async fn ask(&mut self, statement: Statement) -> Option<Reply> {
        let store = self.world.store.clone();
        match statement {
            Statement::Claim { by, execution } => {
                let claimed = self.workers[usize::from(by)].claim(1).await.into_iter().next()?;
                assert_eq!(claimed.id, self.id(execution), "{}", self.told("another one was claimed"));
                let token = u8::try_from(claimed.attempt).unwrap();
                let wake_seq = u8::try_from(claimed.wake_seq).unwrap();
                self.leases.insert((execution, token), claimed);
                Some(Reply::Claimed { token, wake_seq })
            }
            Statement::Record { lease, write } => Some(self.record(lease, write).await),
            Statement::Conclude { lease, ending } => Some(self.conclude(lease, ending).await),
            Statement::Request { lease } => Some(self.request(lease).await),
            Statement::Spawn { lease } => Some(self.spawn(lease).await),
            Statement::Reserve { lease } => Some(self.reserve(lease).await),
            Statement::Fold => {
                store.fold_budgets(None, 100).await.unwrap();
                None
            }
            Statement::Raise => {
                let caps = Caps { max_cost: Some(Usd::from_nanos(modelled_budget(&self.state).0)), ..Caps::default() };
                store.raise_budget(self.id(payer(&self.machine.scenario)), caps).await.unwrap();
                None
            }
            Statement::Renew { .. } => panic!("{}", self.told("nobody is cut off in a walk")),
            Statement::Bury { .. } => {
                let buried = bury(&store, Duration::ZERO).await;
                assert!(!buried.is_empty(), "{}", self.told("nobody was buried"));
                None
            }
            Statement::Reap { .. } => {
                assert!(!store.reap(100).await.unwrap().is_empty(), "{}", self.told("nothing was taken back"));
                None
            }
            Statement::WakeDue { .. } => {
                assert!(!store.wake_due(100).await.unwrap().is_empty(), "{}", self.told("nothing was due"));
                None
            }
            Statement::CancelChild { .. } => {
                let cancelled = store.cancel_descendants(100).await.unwrap();
                assert!(!cancelled.is_empty(), "{}", self.told("no child was cancelled"));
                None
            }
            Statement::Cancel { execution } => {
                let cancelled = store.cancel_execution(self.world.tenant, self.id(execution)).await.unwrap();
                let has_ended = self.state.execution(execution).end.is_some();
                let expected = if has_ended { Cancelled::Ended } else { Cancelled::Requested };
                assert_eq!(cancelled, expected, "{}", self.told("the answer to a cancel"));
                None
            }
            Statement::Decide { .. } => {
                let decision = NewDecision {
                    verdict: Verdict::Approve,
                    hash: call_hash("pay", b"{}"),
                    by: Decider { key_id: ApiKeyId(Uuid::nil()), key_name: "ops".into(), person: None },
                    reason: None,
                };
                let decided = store.decide_request(self.world.tenant, self.request.unwrap(), &decision).await.unwrap();
                assert!(decided.is_some(), "{}", self.told("a decision found nothing to decide"));
                None
            }
            Statement::HandOver { .. } => {
                assert!(
                    !store.sweep_slots(None, 100).await.unwrap().0.is_empty(),
                    "{}",
                    self.told("nothing was handed over")
                );
                None
            }
        }
    }

    fn lease(&self, lease: LeaseName) -> (&TestWorker, &Claimed) {
        (&self.workers[usize::from(lease.by)], &self.leases[&(lease.execution, lease.token)])
    }

    fn key(name: &str) -> [u8; 32] {
        Sha256::digest(name).into()
    }

    fn write(&self, lease: LeaseName, Write { number, step: at }: Write) -> JournalWrite {
        let (_, claimed) = self.lease(lease);
        let mut write = write(claimed, number.into(), vec![step(i32::from(at) + 1, Turn, &format!("step {at}"))]);
        if self.machine.scenario.work[usize::from(lease.execution)] == Work::Pays {
            let cost = Some(Usd::from_nanos(i64::from(COST) * UNIT));
            write.settlements =
                vec![Settlement { step_key: Self::key("turn"), cost, tokens: 1, calls: 1, is_estimate: false }];
        }
        write
    }

    async fn record(&self, lease: LeaseName, write: Write) -> Reply {
        let (worker, _) = self.lease(lease);
        match worker.record(self.write(lease, write)).await {
            Ok(recorded) => Reply::Recorded {
                wake_seq: u8::try_from(recorded.wake_seq).unwrap(),
                is_cancelled: recorded.cancel_requested,
            },
            // The worker has expired and is not dead yet; nothing was written either.
            Err(StoreError::LeaseLost | StoreError::LeaseStale) => Reply::Lost,
            Err(error) => panic!("{}", self.told(&error.to_string())),
        }
    }

    async fn conclude(&self, lease: LeaseName, ending: Ending) -> Reply {
        let (worker, claimed) = self.lease(lease);
        let lease_key = claimed.lease();
        let end = match ending.verb {
            Verb::Finish => lease_key.finish("1".into()),
            Verb::Cancel => lease_key.cancel(),
            Verb::Release => lease_key.release(),
            Verb::Park(Wait::Backoff, wake_seq) => lease_key.retry(&transient(), Duration::ZERO, wake_seq.into()),
            Verb::Park(wait, wake_seq) => {
                let reason = match wait {
                    Wait::Approval => WaitReason::Approval,
                    Wait::Children => WaitReason::Children,
                    Wait::Budget => WaitReason::Budget,
                    Wait::Worker | Wait::Backoff | Wait::Slot => panic!("{}", self.told("nobody parks so")),
                };
                lease_key.park(reason, None, wake_seq.into())
            }
        };
        let write = ending.write.map(|write| Arc::new(self.write(lease, write)));
        match worker.writer.conclude(end.with(write)).await {
            Ok(_) => Reply::Concluded,
            Err(StoreError::LeaseLost | StoreError::LeaseStale) => Reply::Lost,
            Err(error) => panic!("{}", self.told(&error.to_string())),
        }
    }

    async fn request(&mut self, lease: LeaseName) -> Reply {
        let (worker, claimed) = self.lease(lease);
        let asked = NewHumanRequest {
            execution_id: claimed.id,
            token: claimed.token,
            kind: RequestKind::Approval,
            call_key: [1; 32],
            call_id: "call_1".into(),
            round: 0,
            tool: "pay".into(),
            arguments: b"{}".to_vec(),
            shown: "{}".into(),
            schema: None,
            policy: None,
            redact: Vec::new(),
            allow_self: false,
            expires_in: Duration::from_secs(3_600),
        };
        match worker.writer.request(asked).await {
            Ok(request) => {
                self.request = Some(request.id);
                Reply::Asked { is_decided: request.state != RequestState::Waiting }
            }
            Err(StoreError::LeaseLost | StoreError::LeaseStale) => Reply::Lost,
            Err(error) => panic!("{}", self.told(&error.to_string())),
        }
    }

    async fn spawn(&mut self, lease: LeaseName) -> Reply {
        let (worker, claimed) = self.lease(lease);
        match worker.try_spawn(claimed, 0..1, ROOMY).await {
            Ok(Ok(children)) => {
                let Work::Spawns(child) = self.machine.scenario.work[usize::from(lease.execution)] else {
                    panic!("{}", self.told("it spawns nothing"))
                };
                self.ids[usize::from(child)] = Some(children[0]);
                Reply::Spawned
            }
            Ok(Err(SpawnRefused::Cancelled)) => Reply::Cancelled,
            Err(StoreError::LeaseLost | StoreError::LeaseStale) => Reply::Lost,
            other => panic!("{}", self.told(&format!("{other:?}"))),
        }
    }

    async fn reserve(&self, lease: LeaseName) -> Reply {
        let (worker, claimed) = self.lease(lease);
        let reservation = Reservation {
            id: claimed.id,
            token: claimed.token,
            step_key: Self::key("turn"),
            price: Some(CallPrice { prompt: Usd::from_nanos(i64::from(ESTIMATE) * UNIT), reply: Usd::ZERO }),
            prompt_tokens: 0,
            reply_tokens: 1,
            least_reply_tokens: 1,
            may_wait: true,
        };
        match worker.writer.reserve(reservation).await {
            Ok(Reserved::Granted { .. }) => Reply::Granted,
            Ok(Reserved::Waiting { wake_seq }) => Reply::NoBudget { wake_seq: u8::try_from(wake_seq).unwrap() },
            Ok(Reserved::Cancelled) => Reply::Cancelled,
            Err(StoreError::LeaseLost | StoreError::LeaseStale) => Reply::Lost,
            other => panic!("{}", self.told(&format!("{other:?}"))),
        }
    }

    async fn compare(&self) {
        let workers: Vec<Uuid> = self.workers.iter().map(|worker| worker.id.0).collect();
        let tokens = self.leases.iter().map(|(name, claimed)| (*name, claimed.token.0)).collect();
        for (at, id) in (0..).zip(&self.ids) {
            let is_there = self.state.execution(at).exists;
            assert_eq!(id.is_some(), is_there, "{}", self.told("which executions there are"));
            let Some(id) = id else { continue };
            let (real, model) = (stored(self.world.pool(), id.0).await, modelled(&self.state, at, &workers, &tokens));
            assert_eq!(real, model, "{}", self.told(&format!("execution {at} differs: the store's and the model's")));
        }
        let budget = stored_budget(self.world.pool(), self.id(payer(&self.machine.scenario)).0).await;
        assert_eq!(budget, modelled_budget(&self.state), "{}", self.told("the budgets differ"));
        let holders: Vec<Uuid> =
            sqlx::query_scalar("select execution_id from slots where execution_id is not null order by execution_id")
                .fetch_all(self.world.pool())
                .await
                .unwrap();
        let mut modelled: Vec<Uuid> = self.state.slots.iter().flatten().map(|&at| self.id(at).0).collect();
        modelled.sort_unstable();
        assert_eq!(holders, modelled, "{}", self.told("the slots differ"));
    }
}
