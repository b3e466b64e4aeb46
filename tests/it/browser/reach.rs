//! What pages reach: the public internet and what the operator allows, and nothing else.

use std::time::Duration;

use longhaul_browser::{BrowserError, Target};
use tokio::net::UdpSocket;

use super::{Site, browser, number};

fn refused(result: Result<String, BrowserError>) -> String {
    match result {
        Err(BrowserError::Refused(message)) => message,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redirect_to_private_address_is_refused() {
    let (site, secret) = (Site::start(&[]).await, Site::start(&[("/", "secret")]).await);
    let Some(mut browser) = browser(&[&site.host], &[]).await else { return };
    for url in [secret.url("/"), site.url(&format!("/to?{}", secret.url("/"))), "http://169.254.169.254/".into()] {
        let message = refused(browser.navigate(&url).await);
        assert!(message.contains("is not on the public internet"), "{url}: {message}");
    }
    let by_name = secret.url("/").replace("127.0.0.1", "localhost");
    assert!(refused(browser.navigate(&by_name).await).contains("`localhost` is not on the public internet"));
    assert_eq!(secret.requests(), Vec::<String>::new());
    assert_eq!(site.requests().len(), 1, "{:?}", site.requests());
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_a_page_at_private_addresses_are_refused() {
    let secret = Site::start(&[("/", "secret")]).await;
    let host = secret.host.clone();
    let site = Site::serve(move |path| {
        (path == "/").then(|| {
            format!(
                "<link rel=stylesheet href='http://{host}/css'><link rel=preconnect href='http://{host}'>
                 <link rel=dns-prefetch href='//localhost'><img src='http://{host}/img'>
                 <iframe src='http://{host}/frame'></iframe><object data='http://{host}/object'></object>
                 <video src='http://{host}/video'></video><script src='http://{host}/script'></script><body><script>
                 const ends = [];
                 for (const url of ['http://{host}/fetch', 'http://10.0.0.1/', 'http://[::1]/', 'http://localhost/'])
                   ends.push(fetch(url, {{mode: 'no-cors'}}).then(() => 'in', () => 'out'));
                 ends.push(new Promise(done => {{
                   const socket = new WebSocket('ws://{host}/socket');
                   socket.onopen = () => done('in'); socket.onerror = () => done('out');
                 }}));
                 navigator.sendBeacon('http://{host}/beacon', 'x');
                 const worker = new Worker(URL.createObjectURL(new Blob([`fetch('http://{host}/worker',
                   {{mode: 'no-cors'}}).then(() => postMessage('in'), () => postMessage('out'))`])));
                 ends.push(new Promise(done => worker.onmessage = event => done(event.data)));
                 Promise.all(ends).then(all => {{ document.title = all.join(' '); fetch('/done'); }});
                 </script>"
            )
        })
    })
    .await;
    let Some(mut browser) = browser(&[&site.host], &[]).await else { return };
    let opened = browser.navigate(&site.url("/")).await.unwrap();
    site.requested("GET /done").await;
    let told = browser.read(0, 10_000).await.unwrap();
    assert!(told.contains("Page: out out out out out out <"), "{told}");
    let told = opened + &told;
    assert!(told.contains("127.0.0.1` is not on the public internet"), "the model is told: {told}");
    assert_eq!(secret.requests(), Vec::<String>::new());
}

/// Without the flags of `launch.rs` packets arrive: WebRTC's of the browser's other headless mode did.
#[tokio::test(flavor = "multi_thread")]
async fn page_sends_no_packet_around_the_proxy() {
    let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
    let port = socket.local_addr().unwrap().port();
    let site = Site::serve(move |path| {
        (path == "/").then(|| {
            format!(
                "<body><script>
                 const servers = [{{urls: 'stun:127.0.0.1:{port}'}},
                   {{urls: 'turn:127.0.0.1:{port}?transport=udp', username: 'a', credential: 'b'}}];
                 const peer = new RTCPeerConnection({{iceServers: servers}});
                 peer.createDataChannel('x');
                 const gathered = new Promise(done => peer.onicecandidate = event => event.candidate || done());
                 peer.createOffer().then(offer => peer.setLocalDescription(offer));
                 const transport = new WebTransport('https://127.0.0.1:{port}/').ready.catch(() => 0);
                 Promise.all([gathered, transport]).then(() => fetch('/done'));
                 </script>"
            )
        })
    })
    .await;
    let Some(mut browser) = browser(&[&site.host], &[]).await else { return };
    browser.navigate(&site.url("/")).await.unwrap();
    site.requested("GET /done").await;
    let arrived = tokio::time::timeout(Duration::from_millis(500), socket.recv_from(&mut [0; 2_000])).await;
    assert!(arrived.is_err(), "{arrived:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn urls_of_other_schemes_are_refused_by_name() {
    let site = Site::start(&[(
        "/",
        "<a href='file:///etc/passwd'>file</a> <a href='chrome://version'>chrome</a>
         <a href='data:text/html,x'>data</a> <a href='view-source:http://127.0.0.1'>source</a>",
    )])
    .await;
    let Some(mut browser) = browser(&[&site.host], &[]).await else { return };
    for (url, scheme) in [
        ("file:///etc/passwd", "file"),
        ("data:text/html,<h1>x", "data"),
        ("chrome://version", "chrome"),
        ("javascript:alert(1)", "javascript"),
        ("view-source:http://example.org", "view-source"),
    ] {
        let message = refused(browser.navigate(url).await);
        assert_eq!(message, format!("only http and https URLs can be opened, not `{scheme}`"));
    }
    browser.navigate(&site.url("/")).await.unwrap();
    let text = browser.read(0, 10_000).await.unwrap();
    for link in ["file:", "chrome:", "data:", "view-source:"] {
        let clicked = browser.click(&Target::Number(number(&text, link))).await.unwrap();
        assert!(clicked.contains(&format!("<{}>", site.url("/"))), "{link}: {clicked}");
    }
    // The element `javascript:` runs in the page itself, as any of its scripts does.
    assert_eq!(site.requests().len(), 1, "{:?}", site.requests());
}
