//! Batches against a closure in place of the server.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

const LIMITS: BatchLimits = BatchLimits {
    what: StoreBatch::Record,
    max_items: 500,
    lanes: 1,
    max_waiting: 1_000,
    patience: Duration::from_secs(5),
};

fn spawn<I, R, F, Fut>(limits: BatchLimits, flush: F) -> Batcher<I, R>
where
    I: Send + Sync + 'static,
    R: Send + 'static,
    F: Fn(Vec<Arc<I>>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Vec<Flushed<R>>, StoreError>> + Send + 'static,
{
    Batcher::spawn(limits, Trouble::default(), |_| 1, flush)
}

fn rejected() -> StoreError {
    StoreError::Rejected(Arc::new(sqlx::Error::Protocol("poison".into())))
}

#[tokio::test]
async fn one_poison_item_fails_alone() {
    let batcher = Arc::new(spawn(LIMITS, |items: Vec<Arc<usize>>| async move {
        if items.iter().any(|item| **item == 250) {
            return Err(rejected());
        }
        Ok(items.iter().map(|item| Flushed::Done(Ok(**item))).collect())
    }));
    let all = (0..500).map(|item| {
        let batcher = batcher.clone();
        async move { (item, batcher.submit(item).await) }
    });
    for (item, result) in futures::future::join_all(all).await {
        match result {
            Ok(same) => assert_eq!(same, item),
            Err(error) => assert!(item == 250 && matches!(error, StoreError::Rejected(_)), "{item} {error}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whole_batch_is_repeated_after_an_outage() {
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = tries.clone();
    let batcher = spawn(LIMITS, move |items: Vec<Arc<u8>>| {
        let attempt = counted.fetch_add(1, Ordering::SeqCst);
        async move {
            if attempt < 3 {
                return Err(StoreError::Unavailable(Arc::new(sqlx::Error::PoolTimedOut)));
            }
            Ok(items.iter().map(|item| Flushed::Done(Ok(**item))).collect())
        }
    });
    assert_eq!(batcher.submit(7).await.unwrap(), 7);
    assert_eq!(tries.load(Ordering::SeqCst), 4);
}

#[tokio::test(start_paused = true)]
async fn items_during_a_slow_flush_form_one_batch() {
    let batches = Arc::new(std::sync::Mutex::new(Vec::new()));
    let flushed = batches.clone();
    let limits = BatchLimits { lanes: 2, ..LIMITS };
    let batcher = Arc::new(spawn(limits, move |items: Vec<Arc<u64>>| {
        flushed.lock().unwrap().push(items.len());
        async move {
            // Each item is the duration of its flush in milliseconds.
            let longest = items.iter().map(|item| **item).max().unwrap();
            tokio::time::sleep(Duration::from_millis(longest)).await;
            Ok(items.iter().map(|item| Flushed::Done(Ok(**item))).collect())
        }
    }));
    let submit = |millis: u64| {
        let batcher = batcher.clone();
        tokio::spawn(async move { batcher.submit(millis).await })
    };
    let started = Instant::now();
    let first = submit(20);
    tokio::time::sleep(Duration::from_millis(1)).await;
    let others: Vec<_> = (0..10).map(|_| submit(1)).collect();
    first.await.unwrap().unwrap();
    futures::future::join_all(others).await;
    assert_eq!(*batches.lock().unwrap(), [1, 10]);
    assert_eq!(started.elapsed(), Duration::from_millis(21));

    let slow = submit(10_000);
    tokio::time::sleep(Duration::from_millis(1)).await;
    let started = Instant::now();
    for _ in 0..10 {
        submit(1).await.unwrap().unwrap();
    }
    // The first submit waits until the slow flush counts as unusually long; those after it do not wait.
    assert!(started.elapsed() < 2 * UNUSUAL && !slow.is_finished(), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_locked_item_does_not_delay_the_others() {
    let unlocked = Arc::new(AtomicUsize::new(0));
    let open = unlocked.clone();
    let batcher = Arc::new(spawn(LIMITS, move |items: Vec<Arc<u8>>| {
        let open = open.load(Ordering::SeqCst) == 1;
        let one = move |item: &Arc<u8>| if **item == 0 && !open { Flushed::Locked } else { Flushed::Done(Ok(**item)) };
        async move { Ok(items.iter().map(one).collect()) }
    }));
    let slow = tokio::spawn({
        let batcher = batcher.clone();
        async move { batcher.submit(0).await }
    });
    tokio::task::yield_now().await;
    assert_eq!(batcher.submit(1).await.unwrap(), 1);
    assert!(!slow.is_finished());
    unlocked.store(1, Ordering::SeqCst);
    assert_eq!(slow.await.unwrap().unwrap(), 0);
}
fn unavailable() -> StoreError {
    StoreError::Unavailable(Arc::new(sqlx::Error::Protocol("nobody listed this".into())))
}

/// Submits all items at once.
async fn submit_all<R: Send + 'static>(
    batcher: &Arc<Batcher<usize, R>>,
    items: std::ops::Range<usize>,
) -> Vec<Result<R, StoreError>> {
    futures::future::join_all(items.map(|item| batcher.submit(item))).await
}

#[tokio::test(start_paused = true)]
async fn unlisted_error_fails_one_item_after_ten_times() {
    let alone = Arc::new(AtomicUsize::new(0));
    let counted = alone.clone();
    let batcher = Arc::new(spawn(LIMITS, move |items: Vec<Arc<usize>>| {
        let is_bad = items.iter().any(|item| **item == 250);
        counted.fetch_add(usize::from(is_bad && items.len() == 1), Ordering::SeqCst);
        async move {
            if is_bad {
                return Err(unavailable());
            }
            Ok(items.iter().map(|item| Flushed::Done(Ok(**item))).collect())
        }
    }));
    let others = tokio::spawn({
        let batcher = batcher.clone();
        async move {
            loop {
                batcher.submit(1_000).await.unwrap();
                sleep(Duration::from_millis(10)).await;
            }
        }
    });
    for (item, result) in submit_all(&batcher, 0..500).await.into_iter().enumerate() {
        match result {
            Ok(same) => assert_eq!(same, item),
            Err(error) => assert!(item == 250 && matches!(error, StoreError::Rejected(_)), "{item} {error}"),
        }
    }
    others.abort();
    assert_eq!(alone.load(Ordering::SeqCst), 11, "the first time, and ten more after others passed");
}

#[tokio::test(start_paused = true)]
async fn item_that_nothing_passes_beside_is_not_refused() {
    let limits = BatchLimits { patience: Duration::from_secs(60), ..LIMITS };
    let batcher = Arc::new(spawn(limits, |_: Vec<Arc<usize>>| async { Err::<Vec<Flushed<()>>, _>(unavailable()) }));
    let started = Instant::now();
    for result in submit_all(&batcher, 0..3).await {
        assert!(matches!(result, Err(StoreError::Unavailable(_))), "{result:?}");
    }
    assert!(started.elapsed() >= Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn statement_that_is_too_much_is_halved_at_once() {
    let sizes = Arc::new(std::sync::Mutex::new(Vec::new()));
    let flushed = sizes.clone();
    let batcher = Arc::new(spawn(LIMITS, move |items: Vec<Arc<usize>>| {
        flushed.lock().unwrap().push(items.len());
        async move {
            if items.len() > 2 {
                return Err(StoreError::TooMuch(Arc::new(sqlx::Error::Protocol("57014".into()))));
            }
            Ok(items.iter().map(|item| Flushed::Done(Ok(**item))).collect())
        }
    }));
    let started = Instant::now();
    let results = submit_all(&batcher, 0..8).await;
    assert!(results.into_iter().enumerate().all(|(item, result)| result.unwrap() == item));
    assert_eq!(*sizes.lock().unwrap(), [8, 4, 2, 2, 4, 2, 2]);
    assert_eq!(started.elapsed(), Duration::ZERO, "none waited");
}

#[tokio::test(start_paused = true)]
async fn unreachable_server_never_splits_a_batch() {
    let sizes = Arc::new(std::sync::Mutex::new(Vec::new()));
    let flushed = sizes.clone();
    let batcher = Arc::new(spawn(LIMITS, move |items: Vec<Arc<usize>>| {
        let mut sizes = flushed.lock().unwrap();
        sizes.push(items.len());
        let is_away = sizes.len() < 5;
        async move {
            if is_away {
                return Err(StoreError::Unreachable(Arc::new(sqlx::Error::PoolTimedOut)));
            }
            Ok(items.iter().map(|item| Flushed::Done(Ok(**item))).collect())
        }
    }));
    for result in submit_all(&batcher, 0..100).await {
        result.unwrap();
    }
    assert_eq!(*sizes.lock().unwrap(), [100; 5]);
}

#[tokio::test(start_paused = true)]
async fn statement_holds_sixteen_mebibytes_at_most() {
    let sizes = Arc::new(std::sync::Mutex::new(Vec::new()));
    let flushed = sizes.clone();
    let flush = move |items: Vec<Arc<usize>>| {
        flushed.lock().unwrap().push(items.len());
        async move { Ok(items.iter().map(|item| Flushed::Done(Ok(**item))).collect()) }
    };
    let batcher = Arc::new(Batcher::spawn(LIMITS, Trouble::default(), |mebibytes| mebibytes << 20, flush));
    let sent = [5, 5, 5, 5, 40, 1, 2].map(|mebibytes| batcher.submit(mebibytes));
    futures::future::join_all(sent).await.into_iter().for_each(|result| assert!(result.is_ok()));
    assert_eq!(*sizes.lock().unwrap(), [3, 1, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn item_locked_beyond_its_patience_fails() {
    let limits = BatchLimits { patience: Duration::from_secs(60), ..LIMITS };
    let flushes = Arc::new(AtomicUsize::new(0));
    let counted = flushes.clone();
    let batcher = Arc::new(spawn(limits, move |items: Vec<Arc<usize>>| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move { Ok(items.iter().map(|_| Flushed::<()>::Locked).collect()) }
    }));
    let started = Instant::now();
    let result = batcher.submit(1).await;
    assert!(matches!(result, Err(StoreError::LeaseStale)), "{result:?}");
    let took = started.elapsed();
    assert!(took >= Duration::from_secs(60) && took < Duration::from_secs(61), "{took:?}");
    // Each pause is a quarter of the wait so far, and at most 250 ms: not one flush each five milliseconds.
    assert!(flushes.load(Ordering::SeqCst) < 300, "{flushes:?}");
}
