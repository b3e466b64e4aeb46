//! Shares the event streams and held submits of a process fairly between tenants.
//!
//! A tenant may take every free slot. When none is free, a tenant that holds at least two fewer than the largest
//! holder takes that holder's oldest slot: the evicted client reconnects with its cursor, or gets the current record.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use longhaul_shared::domain::TenantId;
use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

/// The slots of a process. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct StreamSlots(Arc<Mutex<HeldSlots>>);

#[derive(Debug)]
struct HeldSlots {
    max: usize,
    total: usize,
    next: u64,
    /// Ordered by age: a tenant's first entry is its oldest.
    of: HashMap<TenantId, BTreeMap<u64, CancellationToken>>,
}

/// A held slot; dropping it frees the slot.
#[derive(Debug)]
pub(crate) struct StreamSlot {
    slots: StreamSlots,
    tenant: TenantId,
    number: u64,
    taken_away: CancellationToken,
}

impl StreamSlots {
    pub(crate) fn new(max: usize) -> Self {
        Self(Arc::new(Mutex::new(HeldSlots { max, total: 0, next: 0, of: HashMap::new() })))
    }

    /// Takes a slot for `tenant`; `None` if none is free and the tenant has its share.
    pub(crate) fn take(&self, tenant: TenantId) -> Option<StreamSlot> {
        let mut held = self.lock();
        if held.total >= held.max && !held.make_room(tenant) {
            return None;
        }
        let (number, taken_away) = (held.next, CancellationToken::new());
        held.next += 1;
        held.total += 1;
        held.of.entry(tenant).or_default().insert(number, taken_away.clone());
        Some(StreamSlot { slots: self.clone(), tenant, number, taken_away })
    }

    fn lock(&self) -> MutexGuard<'_, HeldSlots> {
        self.0.lock()
    }
}

impl HeldSlots {
    fn make_room(&mut self, tenant: TenantId) -> bool {
        let own = self.of.get(&tenant).map_or(0, BTreeMap::len);
        let Some((&largest, slots)) = self.of.iter().max_by_key(|(_, slots)| slots.len()) else { return false };
        // With a difference of one, the two tenants would take the slot from each other in turn.
        if slots.len() < own + 2 {
            return false;
        }
        let oldest = slots.keys().next().copied();
        oldest.and_then(|number| self.remove(largest, number)).inspect(CancellationToken::cancel).is_some()
    }

    fn remove(&mut self, tenant: TenantId, number: u64) -> Option<CancellationToken> {
        let slots = self.of.get_mut(&tenant)?;
        let removed = slots.remove(&number)?;
        if slots.is_empty() {
            self.of.remove(&tenant);
        }
        self.total -= 1;
        Some(removed)
    }
}

impl StreamSlot {
    /// Resolves when another tenant takes the slot.
    pub(crate) async fn taken_away(&self) {
        self.taken_away.cancelled().await;
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        self.slots.lock().remove(self.tenant, self.number);
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn tenant(number: u128) -> TenantId {
        TenantId(Uuid::from_u128(number))
    }

    #[test]
    fn full_slots_go_to_tenants_below_their_share() {
        let slots = StreamSlots::new(4);
        let mut first: Vec<_> = (0..4).map(|_| slots.take(tenant(1)).unwrap()).collect();
        assert!(slots.take(tenant(1)).is_none(), "beyond the limit");
        let second = [slots.take(tenant(2)).unwrap(), slots.take(tenant(2)).unwrap()];
        let taken: Vec<_> = first.iter().map(|slot| slot.taken_away.is_cancelled()).collect();
        assert_eq!(taken, [true, true, false, false], "the oldest are taken");
        assert!(slots.take(tenant(2)).is_none(), "more than a share is taken");
        let third = slots.take(tenant(3)).unwrap();
        assert!(slots.take(tenant(3)).is_none());
        // An evicted slot is not freed a second time.
        first.drain(..2);
        assert!(slots.take(tenant(1)).is_none() && slots.lock().total == 4);
        drop((first, second, third));
        assert!(slots.lock().of.is_empty() && slots.lock().total == 0);
    }

    #[test]
    fn freed_slots_are_free_for_everybody() {
        let slots = StreamSlots::new(1);
        let held = slots.take(tenant(1)).unwrap();
        assert!(slots.take(tenant(2)).is_none(), "the only slot of a tenant is its own");
        drop(held);
        assert!(slots.take(tenant(2)).is_some());
        assert!(StreamSlots::new(0).take(tenant(1)).is_none());
    }
}
