//! Shares the event streams and held submits of a process fairly between tenants.
//!
//! A tenant may take every free place. When none is free, a tenant that holds at least two fewer than the largest
//! holder takes that holder's oldest place: the evicted client reconnects with its cursor, or gets the current record.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use longhaul_shared::domain::TenantId;
use tokio_util::sync::CancellationToken;

/// See the module. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct StreamPlaces(Arc<Mutex<Held>>);

#[derive(Debug)]
struct Held {
    max: usize,
    total: usize,
    next: u64,
    /// Ordered by age: a tenant's first entry is its oldest.
    of: HashMap<TenantId, BTreeMap<u64, CancellationToken>>,
}

/// A held place; dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Place {
    places: StreamPlaces,
    tenant: TenantId,
    number: u64,
    taken_away: CancellationToken,
}

impl StreamPlaces {
    pub(crate) fn new(max: usize) -> Self {
        Self(Arc::new(Mutex::new(Held { max, total: 0, next: 0, of: HashMap::new() })))
    }

    /// Takes a place for `tenant`; `None` if none is free and the tenant has its share.
    pub(crate) fn take(&self, tenant: TenantId) -> Option<Place> {
        let mut held = self.lock();
        if held.total >= held.max && !held.make_room(tenant) {
            return None;
        }
        let (number, taken_away) = (held.next, CancellationToken::new());
        held.next += 1;
        held.total += 1;
        held.of.entry(tenant).or_default().insert(number, taken_away.clone());
        Some(Place { places: self.clone(), tenant, number, taken_away })
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn make_room(&mut self, tenant: TenantId) -> bool {
        let own = self.of.get(&tenant).map_or(0, BTreeMap::len);
        let Some((&largest, places)) = self.of.iter().max_by_key(|(_, places)| places.len()) else { return false };
        // With a difference of one, the two tenants would take the place from each other in turn.
        if places.len() < own + 2 {
            return false;
        }
        let oldest = places.keys().next().copied();
        oldest.and_then(|number| self.remove(largest, number)).inspect(CancellationToken::cancel).is_some()
    }

    fn remove(&mut self, tenant: TenantId, number: u64) -> Option<CancellationToken> {
        let places = self.of.get_mut(&tenant)?;
        let removed = places.remove(&number)?;
        if places.is_empty() {
            self.of.remove(&tenant);
        }
        self.total -= 1;
        Some(removed)
    }
}

impl Place {
    /// Resolves when another tenant takes the place.
    pub(crate) async fn taken_away(&self) {
        self.taken_away.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().remove(self.tenant, self.number);
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
    fn full_places_go_to_tenants_below_their_share() {
        let places = StreamPlaces::new(4);
        let mut first: Vec<_> = (0..4).map(|_| places.take(tenant(1)).unwrap()).collect();
        assert!(places.take(tenant(1)).is_none(), "beyond the limit");
        let second = [places.take(tenant(2)).unwrap(), places.take(tenant(2)).unwrap()];
        let taken: Vec<_> = first.iter().map(|place| place.taken_away.is_cancelled()).collect();
        assert_eq!(taken, [true, true, false, false], "the oldest are taken");
        assert!(places.take(tenant(2)).is_none(), "more than a share is taken");
        let third = places.take(tenant(3)).unwrap();
        assert!(places.take(tenant(3)).is_none());
        // An evicted place is not freed a second time.
        first.drain(..2);
        assert!(places.take(tenant(1)).is_none() && places.lock().total == 4);
        drop((first, second, third));
        assert!(places.lock().of.is_empty() && places.lock().total == 0);
    }

    #[test]
    fn freed_places_are_free_for_everybody() {
        let places = StreamPlaces::new(1);
        let held = places.take(tenant(1)).unwrap();
        assert!(places.take(tenant(2)).is_none(), "the only place of a tenant is its own");
        drop(held);
        assert!(places.take(tenant(2)).is_some());
        assert!(StreamPlaces::new(0).take(tenant(1)).is_none());
    }
}
