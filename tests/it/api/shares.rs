//! Resources of a process that one tenant holds, and another tenant beside it.

use std::{collections::BTreeMap, time::Duration};

use futures::{FutureExt, StreamExt, future::join_all, stream};
use longhaul_api::ApiOptions;
use longhaul_config::FilesConfig;
use reqwest::{Body, Method};
use sqlx::Connection as _;
use tokio::{task::JoinHandle, time::interval};

use super::files::{put, put_file};
use crate::support::{
    api::{Caller, EVERYDAY, TestApi},
    wait::eventually,
};

const PATIENCE: Duration = Duration::from_secs(60);
const FILE_BYTES: usize = FilesConfig::FILE_BYTES;
const MEMORY_BYTES: usize = 5 * FILE_BYTES;

/// An API with the least memory for files that it may have.
async fn api() -> TestApi {
    let settings = [("FILES__REQUEST_BYTES", FILE_BYTES), ("FILES__MEMORY_BYTES", MEMORY_BYTES)];
    let settings = settings.map(|(name, bytes)| (format!("LONGHAUL__{name}"), bytes.to_string()));
    TestApi::start_configured(ApiOptions::default(), BTreeMap::from(settings)).await
}

/// Uploads text, the first 18 MiB at once and the rest at twice the least rate. Returns the status, if the client gets
/// one while it sends.
fn slow_upload(caller: &Caller, number: usize) -> JoinHandle<Option<u16>> {
    const CHUNK: usize = 32 * 1_024;
    let most = stream::iter((0..18 * 32).map(|_| Ok::<_, std::io::Error>(vec![b'x'; CHUNK])));
    let rest = stream::unfold(interval(Duration::from_secs(1)), async |mut seconds| {
        seconds.tick().await;
        Some((Ok(vec![b'x'; CHUNK]), seconds))
    });
    let request = caller
        .request(Method::POST, &format!("/v1/files?name={number}"))
        .header("content-length", FILE_BYTES)
        .body(Body::wrap_stream(most.chain(rest)));
    tokio::spawn(async { request.send().await.ok().map(|answer| answer.status().as_u16()) })
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_uploads_give_way_to_another_tenant() {
    let api = api().await;
    let (neighbour, third) = (api.caller("neighbour", EVERYDAY).await, api.caller("third", EVERYDAY).await);
    let until_less_is_free = async |bytes: usize| {
        eventually("the slow uploads hold the memory", PATIENCE, async || {
            let free = api.files.memory().free() as usize;
            if free < bytes { Ok(()) } else { Err(free) }
        })
        .await;
    };
    let slow: Vec<_> = (0..5).map(|number| slow_upload(&api.acme, number)).collect();
    until_less_is_free(FILE_BYTES / 2).await;
    // It gets the rest, and what one upload may have beyond that.
    let last = slow_upload(&third, 0);
    until_less_is_free(1).await;
    put_file(&neighbour, "small.txt", "text/plain", b"8 bytes!").await;
    let text = vec![b'y'; FILE_BYTES];
    let answer = put(&neighbour, "/v1/files?name=large.txt", "text/plain", &text).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let given_way = eventually("an upload gave way", PATIENCE, async || {
        let ended = slow.iter().filter(|upload| upload.is_finished()).count();
        if ended > 0 { Ok(ended) } else { Err(ended) }
    })
    .await;
    assert!(given_way <= 2 && !last.is_finished(), "as many as the neighbour needs: {given_way}");
    for upload in slow.into_iter().filter(JoinHandle::is_finished) {
        assert!(matches!(upload.await.unwrap(), Some(503) | None));
    }
    last.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_downloads_hold_parts_and_no_files() {
    let api = api().await;
    let neighbour = api.caller("neighbour", EVERYDAY).await;
    let text = vec![b'x'; FILE_BYTES];
    let (file, other) =
        (put_file(&api.acme, "f", "text/plain", &text).await, put_file(&neighbour, "f", "text/plain", &text).await);
    let path = format!("/v1/files/{file}/content");
    let heads = join_all((0..12).map(|_| api.acme.request(Method::GET, &path).send())).await;
    // None of these reads its body.
    let bodies: Vec<_> = heads.into_iter().map(|head| head.unwrap().bytes_stream()).collect();
    let got = neighbour.request(Method::GET, &format!("/v1/files/{other}/content")).send().await.unwrap();
    assert_eq!(got.headers()["content-length"], FILE_BYTES.to_string().as_str());
    assert_eq!(got.bytes().await.unwrap(), text);
    let free = api.files.memory().free() as usize;
    assert!(free > MEMORY_BYTES / 2, "12 downloads hold {}", MEMORY_BYTES - free);
    drop(bodies);
    eventually("nothing is held", PATIENCE, async || match api.files.memory().free() as usize {
        MEMORY_BYTES => Ok(()),
        free => Err(free),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_of_one_tenant_leave_the_pool_to_others() {
    let api = TestApi::start().await;
    let neighbour = api.caller("neighbour", EVERYDAY).await;
    // Known keys are not looked up meanwhile.
    assert_eq!(neighbour.get("/v1/agents").await.status, 200);
    let mut lock = sqlx::PgConnection::connect(&api.db.url).await.unwrap();
    let mut locked = lock.begin().await.unwrap();
    sqlx::query("lock table schedules in access exclusive mode").execute(&mut *locked).await.unwrap();
    let (acme, list) = (api.acme.clone(), "/v1/schedules");
    let mut stuck: Vec<_> = (0..16)
        .map(|_| {
            let acme = acme.clone();
            tokio::spawn(async move { acme.get(list).await.status })
        })
        .collect();
    let waiting =
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    eventually("its reads have their places", PATIENCE, async || {
        let count: i64 = sqlx::query_scalar(waiting).fetch_one(&api.db.pool).await.unwrap();
        if count == 3 { Ok(()) } else { Err(count) }
    })
    .await;
    for path in ["/v1/agents", "/v1/executions", "/v1/usage", "/v1/overview"] {
        assert_eq!(neighbour.get(path).await.status, 200, "{path}");
    }
    let invoice = serde_json::json!({"definition": "invoice", "input": {"text": "total 12"}});
    let submitted = neighbour.post("/v1/executions", &invoice).await;
    assert_eq!(submitted.status, 201, "{}", submitted.text);
    assert!(stuck.iter_mut().all(|read| read.now_or_never().is_none()), "the neighbour waited for none of them");
    locked.rollback().await.unwrap();
    for read in stuck {
        read.await.unwrap();
    }
}
