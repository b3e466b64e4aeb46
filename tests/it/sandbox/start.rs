//! The start of a sandbox: its self-test and its refusals.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::json;

use super::service::{As, Mode, Service, client, is_allowed};

/// A program in place of bubblewrap.
fn pretender(dir: &tempfile::TempDir, script: &str) -> String {
    let path = dir.path().join("bwrap");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

/// Fails unless the service refuses to start with this exit code and logs all of these texts.
async fn refuses(mode: Mode, settings: &[(&str, &str)], code: i32, says: &[&str]) {
    let mut service = Service::spawn(mode, As::Self_, settings);
    assert_eq!(service.ended().await.code(), Some(code), "{}", service.log());
    let log = service.log();
    for text in says {
        assert!(log.contains(text), "it does not say `{text}`: {log}");
    }
    assert!(!log.contains("the sandbox listens"), "{log}");
}

#[tokio::test]
async fn test_machine_supports_a_confinement() {
    let namespaces = Service::start(Mode::Namespaces, As::Self_, &[]).await.is_some();
    let landlock = Service::start(Mode::Landlock, As::Self_, &[]).await.is_some();
    assert!(namespaces || landlock, "no mode could be tested");
}

#[tokio::test]
async fn sandbox_without_confinement_does_not_start() {
    let says = ["this machine does not confine", "namespaces: ", "install bubblewrap"];
    refuses(Mode::Namespaces, &[("bwrap", "/bin/false")], 3, &says).await;
    refuses(Mode::Namespaces, &[("bwrap", "/nonexistent/bwrap")], 3, &says).await;
}

/// A bubblewrap that runs its command without confining it. Landlock and seccomp still hold; the namespaces are
/// missing.
#[tokio::test]
async fn fake_confinement_fails_the_self_test() {
    let dir = tempfile::tempdir().unwrap();
    let path = pretender(&dir, "#!/bin/bash\nwhile [[ $1 != -- ]]; do shift; done\nshift\ncd / && exec \"$@\"\n");
    refuses(Mode::Namespaces, &[("bwrap", &path)], 3, &["namespace of the service"]).await;
}

#[tokio::test]
async fn sandbox_with_a_broken_language_does_not_start() {
    let says = ["python does not run", "sandbox.languages"];
    let modes = [Mode::Namespaces, Mode::Landlock, Mode::Unconfined].into_iter();
    for mode in modes.filter(|mode| is_allowed(*mode, As::Self_)) {
        refuses(mode, &[("python", "/usr/bin/no-such-python"), ("dangerously_run_unconfined", "true")], 3, &says).await;
    }
}

#[tokio::test]
async fn dangerous_setting_serves_unconfined_with_a_warning() {
    let service = Service::start(Mode::Unconfined, As::Self_, &[]).await.unwrap();
    assert!(service.log().contains("NOTHING IS CONFINED"), "{}", service.log());
    assert_eq!(service.python("result = 1", json!(null)).await["result"], 1);
    // Limits and the end of the process tree still work.
    let (status, _) =
        service.ask(&json!({"language": "bash", "code": "sleep 100 & sleep 100", "timeout_seconds": 1})).await;
    assert_eq!(status, 504);
    service.settles().await;
}

/// Where confinement works, the setting has no effect.
#[tokio::test]
async fn dangerous_setting_keeps_a_working_confinement() {
    let settings = &[("dangerously_run_unconfined", "true")];
    for mode in [Mode::Namespaces, Mode::Landlock] {
        let Some(service) = Service::start(mode, As::Self_, settings).await else { continue };
        assert_ne!(service.health().await["confinement"], "none");
    }
}

/// In some containers a sandbox cannot have a /proc of its own.
#[tokio::test]
async fn namespaces_work_without_proc() {
    let dir = tempfile::tempdir().unwrap();
    let script = "#!/bin/bash\nfor a; do [[ $a != --proc ]] || { echo \"Can't mount proc\" >&2; exit 1; }; done\nexec \
        /usr/bin/bwrap \"$@\"\n";
    let path = pretender(&dir, script);
    let Some(service) = Service::start(Mode::Namespaces, As::Self_, &[("bwrap", &path)]).await else { return };
    let answer = service.python("import os\nresult = [os.path.exists('/proc/self'), os.getpid()]", json!(null)).await;
    assert_eq!(answer["result"][0], false, "{answer}");
    assert!(answer["result"][1].as_i64().unwrap() < 16, "{answer}");
    assert_eq!(service.bash("result=$(echo x | tr x y)").await["result"], "y");
}

#[tokio::test]
async fn configured_token_is_required() {
    let token = "a-token-of-more-than-16";
    let settings = &[("token", token)];
    let service = match Service::start(Mode::Namespaces, As::Self_, settings).await {
        None => Service::start(Mode::Landlock, As::Self_, settings).await.unwrap(),
        Some(service) => service,
    };
    let body = json!({"language": "python", "code": "result = 1"});
    let ask = async |name: &str, value: String| {
        let request = client().post(format!("{}/v1/execute", service.url)).header(name, value).json(&body);
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(ask("x-other", String::new()).await, 401);
    assert_eq!(ask("authorization", "Bearer wrong-token-of-any-length".into()).await, 401);
    assert_eq!(ask("x-service-token", token[1..].into()).await, 401);
    assert_eq!(ask("authorization", format!("Bearer {token}")).await, 200);
    assert_eq!(ask("x-service-token", token.into()).await, 200);
    assert_eq!(service.health().await["status"], "ok", "health needs none");
    assert!(!service.log().contains(token));
}

#[tokio::test]
async fn invalid_settings_are_refused_at_start() {
    for (settings, says) in [
        ([("timeout_max_seconds", "31")], "at most 30"),
        ([("languages", "perl")], "sandbox.languages"),
        ([("readable", "/")], "not / itself"),
        ([("token", "short")], "16 characters"),
        ([("first_user", "0")], "sandbox.first_user"),
    ] {
        refuses(Mode::Landlock, &settings, 2, &[says]).await;
    }
}

/// A longer time limit than the original's default, up to its schema's maximum, and readable paths of the operator.
#[tokio::test]
async fn operator_can_extend_time_and_readable_paths() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(dir.path().join("table.csv"), "a,b\n").unwrap();
    let readable = dir.path().display().to_string();
    let settings = &[("readable", readable.as_str()), ("timeout_max_seconds", "30"), ("shutdown_seconds", "30")];
    for mode in [Mode::Namespaces, Mode::Landlock] {
        let Some(service) = Service::start(mode, As::Self_, settings).await else { continue };
        let code = "from pathlib import Path\np = Path(input + '/table.csv')\nresult = [p.read_text()]\ntry:\n    \
        p.write_text('x')\nexcept OSError as e:\n    result.append(type(e).__name__)";
        let answer = service.python(code, json!(readable)).await;
        assert_eq!(answer["result"][0], "a,b\n", "{mode:?} {answer}");
        assert!(answer["result"][1].is_string(), "{mode:?} {answer}");
        let body = json!({"language": "python", "code": "result = 1", "timeout_seconds": 30});
        assert_eq!(service.ask(&body).await.0, 200);
    }
}
