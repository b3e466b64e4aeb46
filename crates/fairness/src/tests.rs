use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

use super::*;

/// True once the future is ready; polls it once.
fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

macro_rules! waits {
    ($future:expr) => {{
        let mut future = Box::pin($future);
        assert!(poll(future.as_mut()).is_none(), "it must wait");
        future
    }};
}

fn taken(share: &FairShare<&'static str>, tenant: &'static str, units: u64) -> Share<&'static str> {
    share.try_take(tenant, units).unwrap()
}

#[test]
fn released_unit_goes_to_least_holder() {
    let places = FairShare::new(3);
    let mut held = vec![taken(&places, "a", 1), taken(&places, "a", 1), taken(&places, "b", 1)];
    let mut more_of_a = waits!(places.take("a", 1));
    let mut more_of_b = waits!(places.take("b", 1));
    let mut first_of_c = waits!(places.take("c", 1));
    assert!(places.try_take("d", 1).is_none(), "a request that does not wait passes none that does");
    held.pop();
    // b holds nothing now as c does, and came first.
    let of_b = poll(more_of_b.as_mut()).unwrap().unwrap();
    assert!(poll(first_of_c.as_mut()).is_none());
    held.pop();
    let of_c = poll(first_of_c.as_mut()).unwrap().unwrap();
    assert!(poll(more_of_a.as_mut()).is_none());
    drop((of_b, of_c));
    assert!(poll(more_of_a.as_mut()).unwrap().is_some());
    drop(held);
    assert_eq!((places.used(), places.waiting()), (0, 0));
    assert!(places.holders().is_empty());
}

#[test]
fn cancelled_request_leaves_nothing_behind() {
    let places = FairShare::new(1);
    let held = taken(&places, "a", 1);
    let waiting = waits!(places.take("b", 1));
    let granted = waits!(places.take("c", 1));
    drop(waiting);
    assert_eq!(places.waiting(), 1);
    drop(held);
    assert_eq!(places.holders(), [("c", 1)]);
    // It was granted and never polled again.
    drop(granted);
    assert_eq!((places.used(), places.waiting()), (0, 0));
    let mut memory = places.begin("a");
    assert!(poll(pin!(memory.grow(1))).unwrap());
    let mut other = places.begin("b");
    let growing = waits!(other.grow(1));
    drop(memory);
    drop(growing);
    assert_eq!(places.used(), 0, "growth that was not taken is given back");
    assert!(places.try_take("c", 1).is_some());
}

#[test]
fn cancelled_large_request_lets_smaller_ones_pass() {
    let memory = FairShare::new(10);
    let _held = taken(&memory, "a", 5);
    let large = waits!(memory.take("b", 8));
    let mut small = waits!(memory.take("c", 2));
    drop(large);
    assert!(poll(small.as_mut()).unwrap().is_some());
}

#[test]
fn kept_units_serve_tenants_without_any() {
    let places = FairShare::new(2).keeping(1);
    let (first, second) = (taken(&places, "a", 1), taken(&places, "a", 1));
    let mut third = waits!(places.take("a", 1));
    let of_b = poll(pin!(places.take("b", 1))).unwrap().unwrap();
    let mut more_of_b = waits!(places.take("b", 1));
    let mut of_c = waits!(places.take("c", 1));
    drop(first);
    let of_c = poll(of_c.as_mut()).unwrap().unwrap();
    drop((of_b, of_c));
    // b holds none again; a gets no more than what is free for all.
    let of_b = poll(more_of_b.as_mut()).unwrap().unwrap();
    assert!(poll(third.as_mut()).is_none());
    drop((of_b, second));
    assert!(poll(third.as_mut()).unwrap().is_some());
}

#[test]
fn more_than_all_counts_as_all() {
    let memory = FairShare::new(10);
    let all = poll(pin!(memory.take("a", 99))).unwrap().unwrap();
    assert_eq!(memory.free(), 0);
    drop(all);
    assert_eq!(memory.free(), 10);
}

#[test]
fn idle_share_of_largest_holder_is_asked_back() {
    let browsers = FairShare::new(4);
    let of_a: Vec<_> = (0..3).map(|_| taken(&browsers, "a", 1)).collect();
    let of_b = taken(&browsers, "b", 1);
    of_b.set_idle();
    let mut of_c = waits!(browsers.take("c", 1));
    let asked = || of_a.iter().map(Share::is_asked_back).collect::<Vec<_>>();
    assert_eq!(asked(), [false; 3], "each is used");
    of_a[1].set_idle();
    assert_eq!(asked(), [false, true, false]);
    of_a[0].set_idle();
    assert_eq!(asked(), [false, true, false], "one is enough");
    assert!(!of_b.is_asked_back());
    assert!(poll(of_c.as_mut()).is_none(), "it is not given back yet");
    let mut of_a = of_a;
    drop(of_a.remove(1));
    let of_c = poll(of_c.as_mut()).unwrap().unwrap();
    let more_of_c = waits!(browsers.take("c", 1));
    assert!(of_a.iter().all(|of| !of.is_asked_back()), "the largest has no more than a share");
    drop((of_c, more_of_c));
}

#[test]
fn longest_idle_share_is_asked_back() {
    let browsers = FairShare::new(3);
    let of_a: Vec<_> = (0..3).map(|_| taken(&browsers, "a", 1)).collect();
    of_a.iter().for_each(Share::set_idle);
    of_a[0].set_busy();
    of_a[0].set_idle();
    let _of_b = waits!(browsers.take("b", 1));
    let asked: Vec<_> = of_a.iter().map(Share::is_asked_back).collect();
    assert_eq!(asked, [false, true, false]);
}

#[test]
fn places_are_taken_over_up_to_a_share() {
    let screens = FairShare::new(4);
    let mut first: Vec<_> = (0..4).map(|_| screens.take_over("a").unwrap()).collect();
    assert!(screens.take_over("a").is_none(), "beyond the limit");
    let second = [screens.take_over("b").unwrap(), screens.take_over("b").unwrap()];
    let taken: Vec<_> = first.iter().map(Share::is_asked_back).collect();
    assert_eq!(taken, [true, true, false, false], "the oldest are taken");
    assert!(screens.take_over("b").is_none(), "more than a share is taken");
    let third = screens.take_over("c").unwrap();
    assert!(screens.take_over("c").is_none());
    // A place that was taken over is not given back a second time.
    first.drain(..2);
    assert!(screens.take_over("a").is_none() && screens.used() == 4);
    drop((first, second, third));
    assert!(screens.holders().is_empty() && screens.used() == 0);
    assert!(FairShare::new(0).take_over("a").is_none());
}

#[test]
fn shares_that_wait_for_each_other_end() {
    let memory = FairShare::new(10).overdraft(8);
    let mut uploads: Vec<_> = (0..2).map(|_| memory.begin("a")).collect();
    for upload in &mut uploads {
        assert!(poll(pin!(upload.grow(5))).unwrap());
    }
    let (mut first, mut second) = (uploads.remove(0), uploads.remove(0));
    let mut whole = waits!(memory.take("b", 10));
    assert!(poll(pin!(first.grow(2))).unwrap(), "one may go on");
    let mut waiting = waits!(second.grow(2));
    assert!(poll(pin!(first.grow(1))).unwrap(), "to its end");
    drop(first);
    assert!(poll(waiting.as_mut()).unwrap(), "then the next one");
    drop(waiting);
    assert!(poll(whole.as_mut()).is_none());
    drop(second);
    assert!(poll(whole.as_mut()).unwrap().is_some());
}

#[test]
fn share_that_waits_to_grow_is_asked_back() {
    let memory = FairShare::new(10);
    let mut uploads: Vec<_> = (0..2).map(|_| memory.begin("a")).collect();
    for upload in &mut uploads {
        assert!(poll(pin!(upload.grow(5))).unwrap());
        upload.set_idle();
    }
    let mut first = uploads.remove(0);
    let mut growing = waits!(first.grow(2));
    let mut of_b = waits!(memory.take("b", 2));
    assert!(!poll(growing.as_mut()).unwrap(), "it does not wait for its turn");
    drop(growing);
    drop(first);
    assert!(poll(of_b.as_mut()).unwrap().is_some());
}

#[test]
fn full_line_refuses_its_longest_tenant() {
    let runs = FairShare::new(1).line(3);
    let _held = taken(&runs, "a", 1);
    let mut of_a: Vec<_> = (0..3).map(|_| waits!(runs.take("a", 1))).collect();
    assert!(poll(pin!(runs.take("a", 1))).unwrap().is_none(), "beyond the line");
    let _of_b = waits!(runs.take("b", 1));
    assert!(poll(of_a[2].as_mut()).unwrap().is_none(), "the newest of a is displaced");
    assert!(poll(of_a[1].as_mut()).is_none());
    assert!(poll(pin!(runs.take("b", 1))).unwrap().is_none(), "both have as many");
    assert_eq!(runs.waiting(), 3);
}
