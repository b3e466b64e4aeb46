//! Pages that hold up a browser, fill it, or lie about what is on them.

use longhaul_browser::{Browser, BrowserError, Browsers, Target, Transfer, Typed};
use longhaul_domain::TenantId;
use uuid::Uuid;

use super::{PATIENCE, Running, Site, TENANT, browser, config, number, open, scratch};
use crate::support::wait::eventually;

/// Waits until the browser is gone, and returns why.
async fn gone(browser: &Browser) -> String {
    eventually("the browser is gone", PATIENCE, async || browser.gone().ok_or("it runs")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn dialogs_are_dismissed_and_told() {
    let site = Site::start(&[
        (
            "/",
            "<script>alert('a'.repeat(5000000)); document.title = String(confirm('sure?')) + prompt('name?');
             onbeforeunload = event => { event.preventDefault(); return 'stay'; }</script>
             <button onclick=\"alert('clicked')\">Press</button>",
        ),
        ("/next", "<title>next</title>"),
    ])
    .await;
    let Some(mut browser) = browser(&[&site.host], &[]).await else { return };
    let told = browser.navigate(&site.url("/")).await.unwrap();
    assert!(told.contains("Page: falsenull <"), "{told}");
    assert!(told.contains("a dialog (confirm), which was dismissed: sure?"), "{told}");
    assert!(told.len() < 2_000, "{}", told.len());
    let told = browser.click(&Target::Selector("button".into())).await.unwrap();
    assert!(told.contains("a dialog (alert), which was dismissed: clicked"), "{told}");
    let told = browser.navigate(&site.url("/next")).await.unwrap();
    assert!(told.contains("Page: next <"), "it can be left: {told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_page_is_read_as_far_as_it_is() {
    let site = Site::start(&[("/", "<title>first</title>")]).await;
    let Some(mut browser) = browser(&[&site.host], &[("load_seconds", "2")]).await else { return };
    let told = browser.navigate(&site.url("/endless")).await.unwrap();
    assert!(told.starts_with("The page is open and still loads."), "{told}");
    assert!(browser.read(0, 10_000).await.unwrap().contains("more"));
    let Err(BrowserError::Refused(told)) = browser.navigate(&site.url("/silent")).await else { panic!("it answered") };
    assert_eq!(told, "the server did not answer within 2 s");
    assert!(browser.navigate(&site.url("/")).await.unwrap().contains("Page: first <"), "the browser goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_of_a_page_is_bounded() {
    let site = Site::start(&[
        // One process alone: its own limit refuses the allocation.
        (
            "/one",
            "<body><script>const all = [];
             try { for (let i = 0; i < 100; i++) all.push(new Uint8Array(64e6).fill(1)); document.title = 'all'; }
             catch (error) { document.title = 'refused'; }</script>",
        ),
        // Many processes together: workers of a page share one, so frames of other origins.
        (
            "/many",
            "<body><script>
             setInterval(() => { try { (window.all ??= []).push(new Uint8Array(32e6).fill(1)); } catch {} }, 50);
             const other = location.origin.replace('127.0.0.1', 'localhost');
             if (top === self) document.body.innerHTML = `<iframe src='${other}/many'></iframe>`;</script>",
        ),
    ])
    .await;
    let hosts = [site.host.clone(), site.host.replace("127.0.0.1", "localhost")];
    let limit = [("memory_bytes", "1073741824")];
    let Some(mut browser) = browser(&hosts.each_ref().map(String::as_str), &limit).await else { return };
    let one = browser.navigate(&site.url("/one")).await;
    match one {
        Ok(told) => assert!(told.contains("Page: refused <"), "{told}"),
        // Other processes of the browser have memory, too.
        Err(error) => assert!(error.to_string().contains("bytes of memory"), "{error}"),
    }
    if browser.gone().is_none() {
        let _ = browser.navigate(&site.url("/many")).await;
    }
    let reason = gone(&browser).await;
    assert!(reason.contains("bytes of memory") || reason == "the page crashed", "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn crash_of_a_page_ends_its_browser() {
    let site = Site::start(&[(
        "/",
        "<body><script>let inner = document.body;
         for (let i = 0; i < 20000; i++) {
           const next = document.createElement('div'); inner.append(next); inner = next;
         }
         inner.textContent = 'deep';</script>",
    )])
    .await;
    let Some(mut browser) = browser(&[&site.host], &[]).await else { return };
    let _ = tokio::time::timeout(PATIENCE, browser.navigate(&site.url("/"))).await.unwrap();
    assert_eq!(gone(&browser).await, "the page crashed");
    let Err(BrowserError::Gone(reason)) = browser.read(0, 1_000).await else { panic!("it was read") };
    assert_eq!(reason, "the page crashed");
}

#[tokio::test(flavor = "multi_thread")]
async fn page_cannot_close_itself() {
    let site = Site::start(&[("/", "<button onclick=close()>Close</button>")]).await;
    let Some(mut browser) = browser(&[&site.host], &[]).await else { return };
    browser.navigate(&site.url("/")).await.unwrap();
    // Chromium closes only windows that a script has opened.
    browser.click(&Target::Selector("button".into())).await.unwrap();
    assert!(browser.read(0, 1_000).await.unwrap().contains("Close"));
}

#[tokio::test(flavor = "multi_thread")]
async fn downloads_and_windows_are_refused_and_told() {
    let site = Site::start(&[(
        "/",
        "<a href=/file>load</a> <a href=/window target=_blank>window</a>
         <script>for (let i = 0; i < 500; i++) open('/popup' + i); document.title = String(open('/popup'));</script>",
    )])
    .await;
    let Some(mut browser) = browser(&[&site.host], &[]).await else { return };
    let told = browser.navigate(&site.url("/")).await.unwrap();
    assert!(told.contains("Page: null <") && told.contains("which was not opened: http"), "{told}");
    assert!(told.len() < 4_000, "{}", told.len());
    let text = browser.read(0, 10_000).await.unwrap();
    let told = browser.click(&Target::Number(number(&text, "/window"))).await.unwrap();
    assert!(told.contains(&format!("which was not opened: {}", site.url("/window"))), "{told}");
    let told = browser.click(&Target::Number(number(&text, "/file"))).await.unwrap();
    assert!(told.contains(&format!("a download was refused: {}", site.url("/file"))), "{told}");
    let Err(BrowserError::Refused(told)) = browser.navigate(&site.url("/file")).await else { panic!("it opened") };
    assert!(told.contains("download"), "{told}");
    assert!(!site.requests().iter().any(|request| request.contains("popup") || request.contains("window")));
}

#[tokio::test(flavor = "multi_thread")]
async fn page_cannot_change_how_it_is_read() {
    let site = Site::start(&[(
        "/",
        "<title>real</title><form><input name=tagName><input name=firstChild><input name=nextSibling>
         <input name=getAttribute><input name=nodeType></form><img name=querySelector><img name=title><img name=body>
         <img name=documentElement><img name=elementFromPoint><p>the text</p>
         <script>Object.getOwnPropertyDescriptor = () => { throw 1 }; Array.prototype.push = () => { throw 2 };
         JSON.stringify = () => '{}'; Element.prototype.getAttribute = () => 'evil';
         String.prototype.slice = () => 'evil'; globalThis.elements = [document.body];</script>",
    )])
    .await;
    let Some(mut browser) = browser(&[&site.host], &[]).await else { return };
    browser.navigate(&site.url("/")).await.unwrap();
    let told = browser.read(0, 10_000).await.unwrap();
    assert!(told.starts_with("Page: real <") && told.contains("the text") && !told.contains("evil"), "{told}");
    let typed = Typed { text: "typed".into(), submit: false };
    browser.type_text(&Target::Number(number(&told, "nodeType")), &typed).await.unwrap();
    assert!(browser.read(0, 10_000).await.unwrap().contains("name=\"nodeType\" value=\"typed\""));
    // Its number is of the isolated world, not the page's array.
    let Err(BrowserError::Refused(told)) = browser.click(&Target::Number(99)).await else { panic!("it exists") };
    assert!(told.contains("there is no element 99"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn long_page_is_read_in_parts() {
    let site = Site::start(&[(
        "/",
        "<body><script>document.body.innerHTML = '<p>wörd <a href=x>link</a></p>'.repeat(20000);</script>",
    )])
    .await;
    let Some(mut browser) = browser(&[&site.host], &[]).await else { return };
    browser.navigate(&site.url("/")).await.unwrap();
    let first = browser.read(0, 8_000).await.unwrap();
    assert!(first.len() <= 8_000 && first.contains("read on with `from`: "), "{} {first}", first.len());
    let from = first.rsplit("`from`: ").next().unwrap().trim_end_matches(']').parse().unwrap();
    let second = browser.read(from, 8_000).await.unwrap();
    assert!(second.contains(&format!("[characters {from} to ")), "{second}");
    let beyond = browser.read(1_000_000, 8_000).await.unwrap();
    assert!(beyond.len() < 1_000, "{beyond}");
    let Err(BrowserError::Refused(_)) = browser.click(&Target::Number(5_000)).await else { panic!("all are numbered") };
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_leave_nothing_on_disk() {
    let site = Site::start(&[(
        "/",
        "<body><script>(async () => {
           const cache = await caches.open('x').catch(() => null);
           for (let i = 0; i < 5; i++) await cache?.put('/k' + i, new Response(new Uint8Array(10e6)));
           localStorage.setItem('a', 'b'.repeat(4e6));
           const open = indexedDB.open('a');
           open.onupgradeneeded = () => open.result.createObjectStore('s');
           await new Promise(done => open.onsuccess = open.onerror = done);
           const change = open.result?.transaction('s', 'readwrite');
           change?.objectStore('s').put(new Uint8Array(20e6), 1);
           await new Promise(done => change ? change.oncomplete = change.onabort = done : done());
           fetch('/done');
         })();</script>",
    )])
    .await;
    let (scratch, dir) = scratch();
    let Some(mut browser) = browser(&[&site.host], &[("scratch_dir", &dir)]).await else { return };
    browser.navigate(&site.url("/")).await.unwrap();
    site.requested("GET /done").await;
    let bytes = |dir: &std::path::Path| {
        let (mut sum, mut open) = (0, vec![dir.to_owned()]);
        while let Some(dir) = open.pop() {
            for entry in std::fs::read_dir(dir).unwrap().flatten() {
                let metadata = entry.metadata().unwrap();
                if metadata.is_dir() { open.push(entry.path()) } else { sum += metadata.len() }
            }
        }
        sum
    };
    assert!(bytes(scratch.path()) < 5 << 20, "{}", bytes(scratch.path()));
    let running = Running::below(&dir);
    running.stop();
    drop(browser);
    running.all_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transfer_of_an_attempt_is_bounded() {
    let site = Site::serve(|path| (path == "/").then(|| "<p>word</p>".repeat(200_000))).await;
    let Some(config) = config(&[&site.host], &[]) else { return };
    let (browsers, transfer) = (Browsers::new(&config).unwrap().unwrap(), Transfer::new(1 << 20));
    let mut browser = open(&browsers, &transfer).await.unwrap();
    let _ = browser.navigate(&site.url("/")).await;
    assert!(gone(&browser).await.contains("more than 1048576 bytes"));
    let Err(BrowserError::Refused(told)) = open(&browsers, &transfer).await else { panic!("another one starts") };
    assert!(told.contains("more than 1048576 bytes"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_browser_of_largest_holder_gives_way() {
    let Some(config) = config(&[], &[("max_browsers", "2")]) else { return };
    let (browsers, transfer) = (Browsers::new(&config).unwrap().unwrap(), Transfer::new(1 << 20));
    let (busy, idle) = (open(&browsers, &transfer).await.unwrap(), open(&browsers, &transfer).await.unwrap());
    let (call, _) = (busy.in_use(), idle.in_use());
    let neighbour = TenantId(Uuid::from_u128(1));
    let slot = browsers.slot(neighbour).await.expect("the idle browser gives way");
    let told = gone(&idle).await;
    assert!(told.contains("another tenant of this worker had none"), "{told}");
    assert_eq!(busy.gone(), None);
    drop(call);
    drop(slot);
    browsers.slot(TENANT).await.expect("its own place is free again");
    assert_eq!(busy.gone(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn browsers_of_a_worker_are_limited() {
    let limits = [("max_browsers", "1"), ("load_seconds", "1"), ("call_seconds", "5")];
    let Some(config) = config(&[], &limits) else { return };
    let (browsers, transfer) = (Browsers::new(&config).unwrap().unwrap(), Transfer::new(1 << 20));
    let first = open(&browsers, &transfer).await.unwrap();
    let Err(BrowserError::Refused(told)) = browsers.slot(TENANT).await else { panic!("there is one slot") };
    assert!(told.starts_with("no browser was free within 5 s"), "{told}");
    drop(first);
    browsers.slot(TENANT).await.expect("its slot is free");
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_browser_is_closed() {
    let limits = [("load_seconds", "1"), ("call_seconds", "5"), ("idle_seconds", "6")];
    let Some(browser) = browser(&[], &limits).await else { return };
    assert_eq!(gone(&browser).await, "it was closed after 6 s without a call");
}
