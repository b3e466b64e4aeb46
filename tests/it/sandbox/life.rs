//! No process outlives its run, and no run outlives its service.

use std::{fs, time::Duration};

use futures::future::{Either, select};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::service::{As, Mode, Service, Settings, ask, below, client, with_argument};
use crate::support::wait::eventually;

const PATIENCE: Duration = Duration::from_secs(60);

/// A duration for `sleep` that no other process of this machine uses.
fn unlikely() -> String {
    format!("6{}.5", uuid::Uuid::now_v7().as_u128() % 1_000_000_000)
}

async fn is_gone(marker: &str) {
    eventually("the process is gone", PATIENCE, async || {
        let left = with_argument(marker);
        if left.is_empty() { Ok(()) } else { Err(left.join("; ")) }
    })
    .await;
}

async fn is_there(marker: &str) {
    eventually("the process is there", PATIENCE, async || {
        if with_argument(marker).is_empty() { Err("nothing") } else { Ok(()) }
    })
    .await;
}

/// Starts a run that does not end by itself, in a task.
fn endless(service: &Service, marker: &str) -> tokio::task::JoinHandle<()> {
    let code = format!("import subprocess\nsubprocess.run(['sleep', '{marker}'])");
    let (url, body) = (service.url.clone(), json!({"language": "python", "code": code, "timeout_seconds": 600}));
    tokio::spawn(async move {
        // The service may be killed meanwhile.
        let _ = client().post(format!("{url}/v1/execute")).json(&body).send().await;
    })
}

macro_rules! in_each_mode {
    ($($name:ident;)*) => {
        in_each_mode!(@mode namespaces, Mode::Namespaces, As::Self_, [$($name;)*]);
        in_each_mode!(@mode landlock, Mode::Landlock, As::Self_, [$($name;)*]);
        in_each_mode!(@mode namespaces_unprivileged, Mode::Namespaces, As::Unprivileged, [$($name;)*]);
        in_each_mode!(@mode landlock_unprivileged, Mode::Landlock, As::Unprivileged, [$($name;)*]);
    };
    (@mode $module:ident, $mode:expr, $user:expr, [$($name:ident;)*]) => {
        mod $module {
            use super::*;
            $(
                #[tokio::test]
                async fn $name() {
                    if let Some(service) = Service::start($mode, $user, ONE).await {
                        super::$name(service).await;
                    }
                }
            )*
        }
    };
}

/// One run at a time, and a short wait for a permit.
const ONE: Settings<'static> = &[("concurrency", "1"), ("queue_seconds", "0.2")];

in_each_mode! {
    background_process_ends_with_its_run;
    timeout_kills_the_whole_process_tree;
    disconnected_caller_ends_its_run;
    killed_service_leaves_nothing_behind;
    stopped_service_lets_runs_finish;
    requests_beyond_capacity_are_refused_as_busy;
    runs_cannot_see_each_others_files;
}

async fn background_process_ends_with_its_run(service: Service) {
    let marker = unlikely();
    let code = format!(
        "import subprocess, os, time\n\
         p = subprocess.Popen(['sleep', '{marker}'], stdout=subprocess.DEVNULL)\n\
         if os.fork() == 0:\n    if os.fork() == 0:\n        os.execvp('sleep', ['sleep', '{marker}'])\n    \
         os._exit(0)\n\
         os.wait()\nresult = p.poll()"
    );
    let answer = service.python(&code, Value::Null).await;
    assert_eq!((&answer["error"], &answer["result"]), (&Value::Null, &Value::Null), "{answer}");
    // The processes are already gone when the answer arrives.
    assert_eq!(with_argument(&marker), Vec::<String>::new());
    let marker = unlikely();
    let answer = service
        .bash(&format!("sleep {marker} & (sleep {marker} &) ; nohup sleep {marker} >/dev/null 2>&1 & echo $!"))
        .await;
    assert_eq!(answer["exit_code"], 0, "{answer}");
    assert_eq!(with_argument(&marker), Vec::<String>::new());
    service.settles().await;
}

async fn timeout_kills_the_whole_process_tree(service: Service) {
    let marker = unlikely();
    let code = format!("(trap '' TERM INT HUP; sleep {marker}) & sleep {marker} & sleep {marker}");
    let (status, answer) = service.ask(&json!({"language": "bash", "code": code, "timeout_seconds": 1})).await;
    assert_eq!((status, &answer["timed_out"]), (504, &json!(true)), "{answer}");
    assert_eq!(with_argument(&marker), Vec::<String>::new());
    service.settles().await;
}

async fn disconnected_caller_ends_its_run(service: Service) {
    let marker = unlikely();
    let caller = endless(&service, &marker);
    is_there(&marker).await;
    caller.abort();
    is_gone(&marker).await;
    service.settles().await;
}

async fn killed_service_leaves_nothing_behind(mut service: Service) {
    let marker = unlikely();
    let _caller = endless(&service, &marker);
    is_there(&marker).await;
    assert!(!below(service.pid()).is_empty());
    service.signal(Signal::KILL);
    service.ended().await;
    is_gone(&marker).await;
    eventually("the warden cleans up", PATIENCE, async || {
        let left = service.scratch();
        if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
    })
    .await;
}

async fn stopped_service_lets_runs_finish(mut service: Service) {
    let url = service.url.clone();
    let code = "import time, os\nopen('begun', 'w')\ntime.sleep(4)\nresult = 'done'";
    let run =
        tokio::spawn(
            async move { ask(&url, &json!({"language": "python", "code": code, "timeout_seconds": 15})).await },
        );
    eventually("it runs", PATIENCE, async || match service.health().await["running"].as_u64() {
        Some(1) => Ok(()),
        other => Err(format!("{other:?} run")),
    })
    .await;
    service.signal(Signal::TERM);
    assert_eq!(run.await.unwrap().1["result"], "done");
    assert_eq!(service.ended().await.code(), Some(0), "{}", service.log());
    assert!(client().get(format!("{}/health", service.url)).send().await.is_err(), "nobody listens any more");
}

async fn requests_beyond_capacity_are_refused_as_busy(service: Service) {
    let marker = unlikely();
    let caller = endless(&service, &marker);
    is_there(&marker).await;
    let body = json!({"language": "python", "code": "result = 1"});
    let answer = client().post(format!("{}/v1/execute", service.url)).json(&body).send().await.unwrap();
    assert_eq!((answer.status().as_u16(), &answer.headers()["retry-after"]), (503, &"1".parse().unwrap()));
    assert_eq!(answer.json::<Value>().await.unwrap()["error"], "busy");
    assert_eq!(with_argument(&marker).len(), 1, "what ran still runs");
    // The waiting run starts once the first is gone.
    caller.abort();
    is_gone(&marker).await;
    eventually("there is room again", PATIENCE, async || match service.ask(&body).await {
        (200, answer) => Ok(answer),
        (status, _) => Err(status),
    })
    .await;
}

async fn runs_cannot_see_each_others_files(service: Service) {
    let leave = "import os\nfor place in ('.', '/tmp', '/dev/shm', '/var/tmp', '/work'):\n    try:\n        open(place \
        + '/left-behind', 'w').write('x')\n    except OSError:\n        pass\nresult = os.path.exists('left-behind')";
    assert_eq!(service.python(leave, Value::Null).await["result"], true);
    let look = "import os\nresult = [p for p in ('.', '/tmp', '/dev/shm', '/var/tmp', '/work') if os.path.exists(p + \
        '/left-behind')] + os.listdir('.')";
    assert_eq!(service.python(look, Value::Null).await["result"], json!([]));
    for place in ["/tmp", "/dev/shm", "/var/tmp", "/work"] {
        assert!(fs::metadata(format!("{place}/left-behind")).is_err(), "{place}");
    }
}

#[tokio::test]
async fn tenant_without_a_run_passes_one_with_all() {
    let times = [("queue_seconds", "30"), ("timeout_max_seconds", "30"), ("shutdown_seconds", "30")];
    let settings = &[&times[..], &[("concurrency", "1")]].concat();
    let Some(service) = Service::start(Mode::Landlock, As::Self_, settings).await else { return };
    let (first, second) = (unlikely(), unlikely());
    let callers = [endless(&service, &first)];
    is_there(&first).await;
    let waiting = endless(&service, &second);
    // The first tenant has no name.
    let ask = |tenant: &'static str| {
        let body = json!({"language": "bash", "code": "result=1"});
        client().post(format!("{}/v1/execute", service.url)).header("longhaul-tenant", tenant).json(&body).send()
    };
    for tenant in ["b", "c"] {
        assert_eq!(ask(tenant).await.unwrap().status(), 200, "{tenant}");
    }
    assert!(with_argument(&second).is_empty(), "{second} waits for the run of its own tenant");
    callers.iter().for_each(tokio::task::JoinHandle::abort);
    is_there(&second).await;
    waiting.abort();
}

#[tokio::test]
async fn runs_overlap_up_to_the_limit_then_queue() {
    let times = [("queue_seconds", "30"), ("timeout_max_seconds", "30"), ("shutdown_seconds", "30")];
    let settings = &[&times[..], &[("concurrency", "2"), ("queue_max", "1")]].concat();
    let Some(service) = Service::start(Mode::Landlock, As::Self_, settings).await else { return };
    let (first, second) = (unlikely(), unlikely());
    let callers = [endless(&service, &first), endless(&service, &second)];
    is_there(&first).await;
    is_there(&second).await;
    let body = json!({"language": "bash", "code": "result=1"});
    // Only one request may wait; the other one is refused, in either order.
    let ask_beside = || {
        let (url, body) = (service.url.clone(), body.clone());
        Box::pin(async move { ask(&url, &body).await })
    };
    let (refused, waiting) = match select(ask_beside(), ask_beside()).await {
        Either::Left(ended) | Either::Right(ended) => ended,
    };
    assert_eq!(refused.0, 503, "{}", refused.1);
    callers.iter().for_each(tokio::task::JoinHandle::abort);
    assert_eq!(waiting.await.0, 200);
}
