//! A tenant's share of a resource of this process: places, or bytes of memory.
//!
//! Invariants:
//! - A free unit goes to the waiting tenant that holds least, and among equals to the request that came first. So a
//!   tenant that holds nothing gets its next unit within one release by any tenant.
//! - A tenant may take all units. Units that are [kept](FairShare::keeping) beyond them are for tenants that hold none.
//! - When all units are taken, the oldest idle share of the largest holder is asked back, or
//!   [taken over](FairShare::take_over), for a tenant that then still holds no more than the largest holder.

mod room;

use std::{fmt, hash::Hash, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use self::room::{Room, Waiter};

/// A resource of this process that tenants share, in units. Clones share it.
pub struct FairShare<K> {
    room: Arc<Mutex<Room<K>>>,
}

impl<K> Clone for FairShare<K> {
    fn clone(&self) -> Self {
        Self { room: Arc::clone(&self.room) }
    }
}

impl<K: fmt::Debug> fmt::Debug for FairShare<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FairShare").field(&*self.room.lock()).finish()
    }
}

/// Units that a tenant holds until this is dropped.
pub struct Share<K: Key> {
    room: Arc<Mutex<Room<K>>>,
    key: K,
    number: u64,
    asked_back: CancellationToken,
}

impl<K: Key> fmt::Debug for Share<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Share").field(&self.key).finish()
    }
}

/// Names a tenant.
pub trait Key: Eq + Hash + Clone + fmt::Debug {}
impl<K: Eq + Hash + Clone + fmt::Debug> Key for K {}

impl<K: Key> FairShare<K> {
    /// A resource of `max` units.
    #[must_use]
    pub fn new(max: u64) -> Self {
        Self { room: Arc::new(Mutex::new(Room::new(max))) }
    }

    /// Adds `units` for tenants that hold none: each gets its first unit of them when all others are taken.
    #[must_use]
    pub fn keeping(self, units: u64) -> Self {
        self.room.lock().kept = units;
        self
    }

    /// Lets one share at a time [grow](Share::grow) to `units` even if none are free, so that shares which wait for
    /// each other's units end.
    #[must_use]
    pub fn overdraft(self, units: u64) -> Self {
        self.room.lock().overdraft = units;
        self
    }

    /// Limits the line to `waiting` requests. Beyond it, the newest request of the tenant with the most waiting is
    /// refused.
    #[must_use]
    pub fn line(self, waiting: usize) -> Self {
        self.room.lock().max_waiting = waiting;
        self
    }

    /// Takes units if they are free and no request waits.
    pub fn try_take(&self, key: K, units: u64) -> Option<Share<K>> {
        let taken = self.room.lock().try_take(&key, units);
        taken.map(|(number, asked_back)| self.share(key, number, asked_back))
    }

    /// Takes one unit that other tenants may take over. When none is free, takes that of the largest holder which is
    /// idle for longest; `None` if the tenant has its share.
    pub fn take_over(&self, key: K) -> Option<Share<K>> {
        let taken = self.room.lock().take_over(&key);
        taken.map(|(number, asked_back)| self.share(key, number, asked_back))
    }

    /// Waits for units, at most for all there are. `None` if the line is full.
    pub async fn take(&self, key: K, units: u64) -> Option<Share<K>> {
        let waiting = Waiting::new(&self.room, &key, None, units);
        let (number, asked_back) = waiting.granted().await?;
        Some(self.share(key, number, asked_back))
    }

    /// A share of no units, which grows.
    #[must_use]
    pub fn begin(&self, key: K) -> Share<K> {
        let (number, asked_back) = self.room.lock().add(&key, 0);
        self.share(key, number, asked_back)
    }

    /// Units that are free for every tenant.
    #[must_use]
    pub fn free(&self) -> u64 {
        self.room.lock().free()
    }

    /// Units that are taken.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.room.lock().used
    }

    /// Number of requests that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.room.lock().waiting
    }

    /// Tenants that hold units, with their number.
    #[must_use]
    pub fn holders(&self) -> Vec<(K, u64)> {
        self.room.lock().holders()
    }

    fn share(&self, key: K, number: u64, asked_back: CancellationToken) -> Share<K> {
        Share { room: Arc::clone(&self.room), key, number, asked_back }
    }
}

impl<K: Key> Share<K> {
    /// Waits for more units. Returns false if the line is full, or the share is asked back meanwhile.
    pub async fn grow(&mut self, units: u64) -> bool {
        let waiting = Waiting::new(&self.room, &self.key, Some(self.number), units);
        tokio::select! {
            granted = waiting.granted() => granted.is_some(),
            () = self.asked_back.cancelled() => false,
        }
    }

    /// Lets the share be asked back while it is idle.
    pub fn set_idle(&self) {
        self.room.lock().set_idle(&self.key, self.number);
    }

    /// Keeps the share from being asked back.
    pub fn set_busy(&self) {
        self.room.lock().set_busy(&self.key, self.number);
    }

    /// Resolves when another tenant needs the units.
    pub async fn asked_back(&self) {
        self.asked_back.cancelled().await;
    }

    #[must_use]
    pub fn is_asked_back(&self) -> bool {
        self.asked_back.is_cancelled()
    }
}

impl<K: Key> Drop for Share<K> {
    fn drop(&mut self) {
        self.room.lock().give_back(&self.key, self.number);
    }
}

/// A request in the line. Dropped, it leaves the line, or gives back what it was granted and did not take.
struct Waiting<'a, K: Key> {
    room: &'a Mutex<Room<K>>,
    key: &'a K,
    units: u64,
    grows: Option<u64>,
    ticket: u64,
    granted: oneshot::Receiver<Granted>,
    is_over: bool,
}

/// Number of the share, and the token by which it is asked back.
type Granted = (u64, CancellationToken);

impl<'a, K: Key> Waiting<'a, K> {
    fn new(room: &'a Mutex<Room<K>>, key: &'a K, grows: Option<u64>, units: u64) -> Self {
        let (grant, granted) = oneshot::channel();
        let ticket = room.lock().line_up(key, Waiter { units, grows, grant });
        Self { room, key, units, grows, ticket, granted, is_over: false }
    }

    async fn granted(mut self) -> Option<Granted> {
        let granted = (&mut self.granted).await.ok();
        self.is_over = true;
        granted
    }
}

impl<K: Key> Drop for Waiting<'_, K> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut room = self.room.lock();
        // Grants are sent under the lock, so the request either waits or has been answered.
        if !room.leave(self.key, self.ticket)
            && let Ok((number, _)) = self.granted.try_recv()
        {
            match self.grows {
                Some(_) => room.shrink(self.key, number, self.units),
                None => room.give_back(self.key, number),
            }
        }
    }
}

#[cfg(test)]
mod tests;
