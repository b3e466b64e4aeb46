//! The accounts behind the shares of one resource. Every method runs under its lock and never waits.

use std::collections::{BTreeMap, HashMap};

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::{Granted, Key};

#[derive(Debug)]
pub(crate) struct Room<K> {
    max: u64,
    /// Units beyond `max` for tenants that hold none.
    pub(crate) kept: u64,
    /// Units to which one share may grow though none are free.
    pub(crate) overdraft: u64,
    pub(crate) max_waiting: usize,
    pub(crate) used: u64,
    pub(crate) waiting: usize,
    /// Units that were asked back and not yet given back.
    returning: u64,
    /// The share that uses the overdraft.
    overdrawn: Option<u64>,
    /// Next number of a share or a ticket.
    next: u64,
    tenants: HashMap<K, Tenant>,
}

#[derive(Debug, Default)]
struct Tenant {
    held: u64,
    /// Units of `held` that were asked back.
    returning: u64,
    /// By number, so that the oldest share is first.
    shares: BTreeMap<u64, Held>,
    /// Requests that wait, by ticket.
    line: BTreeMap<u64, Waiter>,
}

#[derive(Debug)]
struct Held {
    units: u64,
    /// Moment from which on the share is idle, in the order of numbers; `None` while it is used.
    idle_since: Option<u64>,
    asked_back: CancellationToken,
}

#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) units: u64,
    /// The share that grows; `None`: a new one.
    pub(crate) grows: Option<u64>,
    pub(crate) grant: oneshot::Sender<Granted>,
}

impl Tenant {
    fn is_unknown(&self) -> bool {
        self.shares.is_empty() && self.line.is_empty()
    }

    /// The share that is idle for longest and was not asked back.
    fn idlest(&self) -> Option<(u64, &Held)> {
        let idle = self.shares.iter().filter(|(_, held)| held.units > 0 && !held.asked_back.is_cancelled());
        let since = idle.filter_map(|(number, held)| Some((held.idle_since?, *number, held)));
        since.min_by_key(|(since, _, _)| *since).map(|(_, number, held)| (number, held))
    }
}

impl<K: Key> Room<K> {
    pub(crate) fn new(max: u64) -> Self {
        Self {
            max,
            kept: 0,
            overdraft: 0,
            max_waiting: usize::MAX,
            used: 0,
            waiting: 0,
            returning: 0,
            overdrawn: None,
            next: 0,
            tenants: HashMap::new(),
        }
    }

    pub(crate) fn free(&self) -> u64 {
        self.max.saturating_sub(self.used)
    }

    pub(crate) fn holders(&self) -> Vec<(K, u64)> {
        let holders = self.tenants.iter().filter(|(_, tenant)| tenant.held > 0);
        holders.map(|(key, tenant)| (key.clone(), tenant.held)).collect()
    }

    pub(crate) fn try_take(&mut self, key: &K, units: u64) -> Option<Granted> {
        (self.waiting == 0 && self.fits(self.held(key), units)).then(|| self.add(key, units))
    }

    pub(crate) fn take_over(&mut self, key: &K) -> Option<Granted> {
        let own = self.held(key);
        if !self.fits(own, 1) {
            let (holder, number) = self.victim(own, 1)?;
            if let Some(taken) = self.remove(&holder, number) {
                taken.asked_back.cancel();
            }
        }
        let granted = self.add(key, 1);
        self.set_idle(key, granted.0);
        Some(granted)
    }

    /// Adds a share, whether its units are free or not.
    pub(crate) fn add(&mut self, key: &K, units: u64) -> Granted {
        let (number, asked_back) = (self.number(), CancellationToken::new());
        let tenant = self.tenants.entry(key.clone()).or_default();
        tenant.shares.insert(number, Held { units, idle_since: None, asked_back: asked_back.clone() });
        tenant.held += units;
        self.used += units;
        (number, asked_back)
    }

    /// Places a request in the line, and serves the line. Returns its ticket.
    pub(crate) fn line_up(&mut self, key: &K, waiter: Waiter) -> u64 {
        let waiter = Waiter { units: waiter.units.min(self.max), ..waiter };
        let ticket = self.number();
        if self.overdrawn.is_some() && self.overdrawn == waiter.grows && self.may_overdraw(key, &waiter) {
            self.grant(key, waiter);
            return ticket;
        }
        if self.waiting >= self.max_waiting && !self.fits(self.held(key), waiter.units) && !self.displace(key) {
            // Dropping the waiter refuses it.
            return ticket;
        }
        self.tenants.entry(key.clone()).or_default().line.insert(ticket, waiter);
        self.waiting += 1;
        self.serve();
        ticket
    }

    /// Removes a request from the line. Returns false if it does not wait.
    pub(crate) fn leave(&mut self, key: &K, ticket: u64) -> bool {
        let Some(tenant) = self.tenants.get_mut(key) else { return false };
        if tenant.line.remove(&ticket).is_none() {
            return false;
        }
        self.waiting -= 1;
        self.forget(key);
        self.serve();
        true
    }

    pub(crate) fn give_back(&mut self, key: &K, number: u64) {
        self.remove(key, number);
        self.serve();
    }

    pub(crate) fn set_idle(&mut self, key: &K, number: u64) {
        let now = self.number();
        if let Some(held) = self.share(key, number) {
            held.idle_since = Some(now);
            self.ask_back();
        }
    }

    pub(crate) fn set_busy(&mut self, key: &K, number: u64) {
        if let Some(held) = self.share(key, number) {
            held.idle_since = None;
        }
    }

    /// Grants requests while the first of the line fits.
    fn serve(&mut self) {
        while let Some((key, ticket)) = self.first() {
            let held = self.held(&key);
            if !self.waiter(&key, ticket).is_some_and(|waiter| self.fits(held, waiter.units)) {
                break;
            }
            self.grant_ticket(&key, ticket);
        }
        self.overdraw();
        self.ask_back();
    }

    /// Lets the first share of the line that grows use the overdraft, if none uses it.
    fn overdraw(&mut self) {
        if self.overdraft == 0 || self.overdrawn.is_some() || self.waiting == 0 {
            return;
        }
        let lines = self.tenants.iter().flat_map(|(key, tenant)| {
            tenant.line.iter().map(move |(ticket, waiter)| (tenant.held, *ticket, key, waiter))
        });
        let grows = lines.filter(|(.., key, waiter)| waiter.grows.is_some() && self.may_overdraw(key, waiter));
        let first = grows.min_by_key(|(held, ticket, ..)| (*held, *ticket));
        if let Some((_, ticket, key, waiter)) = first {
            let (key, number) = (key.clone(), waiter.grows);
            self.grant_ticket(&key, ticket);
            self.overdrawn = number;
        }
    }

    fn may_overdraw(&self, key: &K, waiter: &Waiter) -> bool {
        let held = waiter.grows.and_then(|number| Some(self.tenants.get(key)?.shares.get(&number)?.units));
        held.is_some_and(|held| held + waiter.units <= self.overdraft)
    }

    /// Asks for the units that the first request of the line lacks.
    fn ask_back(&mut self) {
        let Some((key, ticket)) = self.first() else { return };
        let (own, Some(wanted)) = (self.held(&key), self.waiter(&key, ticket).map(|waiter| waiter.units)) else {
            return;
        };
        while self.used - self.returning + wanted > self.limit(own) {
            let Some((holder, number)) = self.victim(own, wanted) else { return };
            let Some(tenant) = self.tenants.get_mut(&holder) else { return };
            let Some(held) = tenant.shares.get(&number) else { return };
            held.asked_back.cancel();
            tenant.returning += held.units;
            self.returning += held.units;
        }
    }

    /// The longest idle share of the largest holder, if its tenant would still hold as many units without it as one
    /// that holds `own` units and wants `wanted`: with fewer, the two would take them from each other in turn.
    fn victim(&self, own: u64, wanted: u64) -> Option<(K, u64)> {
        let found = self.tenants.iter().filter_map(|(key, tenant)| {
            let (number, held) = tenant.idlest()?;
            let rest = tenant.held - tenant.returning;
            (own + wanted + held.units <= rest).then_some((rest, held.idle_since, key, number))
        });
        let largest = found.max_by(|(a, a_since, ..), (b, b_since, ..)| a.cmp(b).then(b_since.cmp(a_since)));
        largest.map(|(_, _, key, number)| (key.clone(), number))
    }

    /// Refuses the newest request of the tenant with the longest line, if that is longer than `key`'s by two.
    fn displace(&mut self, key: &K) -> bool {
        let own = self.tenants.get(key).map_or(0, |tenant| tenant.line.len());
        let longest = self.tenants.iter_mut().max_by_key(|(_, tenant)| tenant.line.len());
        let Some((_, tenant)) = longest.filter(|(_, tenant)| tenant.line.len() >= own + 2) else { return false };
        tenant.line.pop_last();
        self.waiting -= 1;
        true
    }

    fn grant_ticket(&mut self, key: &K, ticket: u64) {
        let waiter = self.tenants.get_mut(key).and_then(|tenant| tenant.line.remove(&ticket));
        if let Some(waiter) = waiter {
            self.waiting -= 1;
            self.grant(key, waiter);
        }
    }

    fn grant(&mut self, key: &K, waiter: Waiter) {
        let granted = match waiter.grows {
            None => Some(self.add(key, waiter.units)),
            Some(number) => self.enlarge(key, number, waiter.units),
        };
        if let Some(granted) = granted {
            // The receiver takes the lock before it goes, so it is there.
            let _ = waiter.grant.send(granted);
        }
    }

    fn enlarge(&mut self, key: &K, number: u64, units: u64) -> Option<Granted> {
        let tenant = self.tenants.get_mut(key)?;
        let held = tenant.shares.get_mut(&number)?;
        held.units += units;
        let asked_back = held.asked_back.clone();
        tenant.held += units;
        self.used += units;
        if asked_back.is_cancelled() {
            tenant.returning += units;
            self.returning += units;
        }
        Some((number, asked_back))
    }

    /// Takes back units by which a share grew.
    pub(crate) fn shrink(&mut self, key: &K, number: u64, units: u64) {
        let units = units.min(self.max);
        if let Some(tenant) = self.tenants.get_mut(key)
            && let Some(held) = tenant.shares.get_mut(&number)
        {
            held.units -= units;
            tenant.held -= units;
            self.used -= units;
            if held.asked_back.is_cancelled() {
                tenant.returning -= units;
                self.returning -= units;
            }
        }
        self.serve();
    }

    fn remove(&mut self, key: &K, number: u64) -> Option<Held> {
        let tenant = self.tenants.get_mut(key)?;
        let held = tenant.shares.remove(&number)?;
        tenant.held -= held.units;
        self.used -= held.units;
        if held.asked_back.is_cancelled() {
            tenant.returning -= held.units;
            self.returning -= held.units;
        }
        self.overdrawn = self.overdrawn.filter(|overdrawn| *overdrawn != number);
        self.forget(key);
        Some(held)
    }

    fn forget(&mut self, key: &K) {
        if self.tenants.get(key).is_some_and(Tenant::is_unknown) {
            self.tenants.remove(key);
        }
    }

    /// The request to serve next: of the waiting tenant that holds least, the one that waits for longest.
    fn first(&self) -> Option<(K, u64)> {
        let lines =
            self.tenants.iter().filter_map(|(key, tenant)| Some((tenant.held, *tenant.line.keys().next()?, key)));
        lines.min_by_key(|(held, ticket, _)| (*held, *ticket)).map(|(_, ticket, key)| (key.clone(), ticket))
    }

    fn fits(&self, own: u64, units: u64) -> bool {
        self.used + units <= self.limit(own)
    }

    /// Units that may be taken by a tenant that holds `own`.
    fn limit(&self, own: u64) -> u64 {
        if own == 0 { self.max + self.kept } else { self.max }
    }

    fn held(&self, key: &K) -> u64 {
        self.tenants.get(key).map_or(0, |tenant| tenant.held)
    }

    fn waiter(&self, key: &K, ticket: u64) -> Option<&Waiter> {
        self.tenants.get(key)?.line.get(&ticket)
    }

    fn share(&mut self, key: &K, number: u64) -> Option<&mut Held> {
        self.tenants.get_mut(key)?.shares.get_mut(&number)
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}
