//! The wire format: requests and answers.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::service::{As, Mode, Service, client, shared};

/// A sandbox in the strongest mode of this machine.
async fn sandbox() -> std::sync::Arc<Service> {
    match shared(Mode::Namespaces, As::Self_).await {
        Some(service) => service,
        None => shared(Mode::Landlock, As::Self_).await.expect("nothing confines here"),
    }
}

/// Keys of every answer to a run, in alphabetical order.
const KEYS: [&str; 7] = ["error", "exit_code", "language", "result", "stderr", "stdout", "timed_out"];

#[tokio::test]
async fn invalid_requests_get_the_contract_codes() {
    let sandbox = sandbox().await;
    let python = |more: Value| {
        let mut body = json!({"language": "python", "code": "pass"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body.to_string()
    };
    let table = [
        ("", "invalid_payload"),
        ("{", "invalid_payload"),
        ("[]", "invalid_payload"),
        ("\u{1}\u{2}", "invalid_payload"),
        ("{}", "unsupported_language"),
        (&json!({"language": null, "code": "pass"}).to_string(), "unsupported_language"),
        (&json!({"language": "Python", "code": "pass"}).to_string(), "unsupported_language"),
        (&json!({"language": "perl", "code": ""}).to_string(), "unsupported_language"),
        (&json!({"language": "python"}).to_string(), "invalid_code"),
        (&python(json!({"code": null})), "invalid_code"),
        (&python(json!({"code": 1})), "invalid_code"),
        (&python(json!({"code": " \n"})), "invalid_code"),
        (&python(json!({"code": "print(1)\u{0}"})), "invalid_code"),
        (&json!({"language": "bash", "code": "echo \u{0}"}).to_string(), "invalid_code"),
        (&python(json!({"code": "#".repeat(300_000)})), "invalid_code"),
        (&python(json!({"timeout_seconds": "5"})), "invalid_timeout_seconds"),
        (&python(json!({"timeout_seconds": true})), "invalid_timeout_seconds"),
        (&python(json!({"timeout_seconds": []})), "invalid_timeout_seconds"),
        (&python(json!({"policy": "none"})), "invalid_policy"),
        (&python(json!({"policy": {"allow_imports": "yes"}})), "invalid_policy"),
        (&python(json!({"policy": {"network_access": 1}})), "invalid_policy"),
        (&python(json!({"policy": {"timeout_seconds": "5"}})), "invalid_policy"),
    ];
    for (body, code) in table {
        let answer = client().post(format!("{}/v1/execute", sandbox.url)).body(body.to_owned()).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{body:.200}");
        let answer: Value = answer.json().await.unwrap();
        assert_eq!(answer["error"], code, "{body:.200}: {answer}");
        assert!(answer["message"].as_str().is_some_and(|message| !message.is_empty()), "{answer}");
        assert_eq!(answer.as_object().unwrap().len(), 2, "{answer}");
    }
}

#[tokio::test]
async fn every_answer_is_json() {
    let sandbox = sandbox().await;
    let large = "x".repeat(3 << 20);
    let table = [
        (Method::GET, "/", "", 404, "not_found"),
        (Method::POST, "/v1/executes", "{}", 404, "not_found"),
        (Method::GET, "/v1/execute", "", 405, "method_not_allowed"),
        (Method::DELETE, "/v1/execute", "", 405, "method_not_allowed"),
        (Method::POST, "/health", "", 405, "method_not_allowed"),
        (Method::POST, "/v1/execute", &large, 413, "payload_too_large"),
    ];
    for (method, path, body, status, code) in table {
        let request = client().request(method.clone(), format!("{}{path}", sandbox.url)).body(body.to_owned());
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{method} {path}");
        assert_eq!(answer.headers()["content-type"], "application/json", "{method} {path}");
        assert_eq!(answer.headers().contains_key("allow"), status == 405);
        assert_eq!(answer.json::<Value>().await.unwrap()["error"], code, "{method} {path}");
    }
    let health = sandbox.health().await;
    assert_eq!((&health["status"], &health["languages"]), (&json!("ok"), &json!(["python", "bash"])));
}

#[tokio::test]
async fn result_object_has_the_contract_keys() {
    let sandbox = sandbox().await;
    let (status, answer) = sandbox.ask(&json!({"language": "python", "code": "print(2 + 2)", "input": null})).await;
    let expected = json!({
        "language": "python", "stdout": "4\n", "stderr": "", "result": null, "error": null, "exit_code": 0,
        "timed_out": false,
    });
    assert_eq!((status, &answer), (200, &expected));
    // The request as the original's clients send it.
    let body = json!({
        "language": "python", "code": "import math\nresult = {'root': math.isqrt(input_payload['n'])}",
        "input": {"n": 49},
        "timeout_seconds": 5, "policy": {"timeout_seconds": 5, "network_access": false, "allow_imports": true},
    });
    let (status, answer) = sandbox.ask(&body).await;
    assert_eq!((status, &answer["result"]), (200, &json!({"root": 7})));
    assert_eq!(answer.as_object().unwrap().keys().collect::<Vec<_>>(), KEYS);
}

/// Plain Python: code, input, result or type of the error, and status.
#[tokio::test]
async fn python_runs_without_language_restrictions() {
    let sandbox = sandbox().await;
    let table = [
        ("result = [input, input_payload]", json!({"a": [1, null]}), Ok(json!([{"a": [1, null]}, {"a": [1, null]}]))),
        ("x = 2\ndef f():\n    return x * g()\ndef g():\n    return 3\nresult = f()", json!(null), Ok(json!(6))),
        ("result = [y for y in range(3) if (lambda: y)() == y]", json!(null), Ok(json!([0, 1, 2]))),
        (
            "try:\n    1 / 0\nexcept Exception as e:\n    result = type(e).__name__",
            json!(null),
            Ok(json!("ZeroDivisionError")),
        ),
        (
            "class A:\n    b = 1\nresult = [A().b, __name__, sorted([3, 1]), isinstance(1, int)]",
            json!(null),
            Ok(json!([1, "__main__", [1, 3], true])),
        ),
        (
            "from dataclasses import dataclass, asdict\n@dataclass\nclass P:\n    x: int\nresult = asdict(P(1))",
            json!(null),
            Ok(json!({"x": 1})),
        ),
        (
            "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 5\nresult = asyncio.run(f())",
            json!(null),
            Ok(json!(5)),
        ),
        (
            "import threading\nresult = []\nthreading.Thread(target=lambda: result.append(1)).start()",
            json!(null),
            Ok(json!([1])),
        ),
        (
            "import subprocess\nresult = subprocess.run(['echo', 'x'], capture_output=True, text=True).stdout",
            json!(null),
            Ok(json!("x\n")),
        ),
        (
            "from concurrent.futures import ThreadPoolExecutor \
                 as T\nresult = list(T(4).map(lambda x: x * x, range(4)))",
            json!(null),
            Ok(json!([0, 1, 4, 9])),
        ),
        (
            "open('x', 'w').write('é')\nresult = [open('x').read(), __import__('os').listdir('.')]",
            json!(null),
            Ok(json!(["é", ["x"]])),
        ),
        (
            "import tempfile, sqlite3\nwith tempfile.NamedTemporaryFile() as f:\n    c = sqlite3.connect(f.name)\n    \
             c.execute('create table t(x)')\n    result = c.execute('select 1').fetchone()",
            json!(null),
            Ok(json!([1])),
        ),
        (
            "import datetime, decimal, re, random, json, csv, statistics, hashlib, zlib, uuid\nresult = \
             uuid.UUID(int=1).hex[-1]",
            json!(null),
            Ok(json!("1")),
        ),
        ("result = input", json!("\u{0}\u{10ffff}\"\\"), Ok(json!("\u{0}\u{10ffff}\"\\"))),
        ("raise SystemExit", json!(null), Ok(json!(null))),
        ("result = 1\nraise SystemExit(3)", json!(null), Err("SystemExit")),
        ("raise ValueError('no')", json!(null), Err("ValueError")),
        ("class Mine(Exception): pass\nraise Mine()", json!(null), Err("Mine")),
        ("def f(:\n", json!(null), Err("SyntaxError")),
        ("undefined", json!(null), Err("NameError")),
        ("import no_such_module", json!(null), Err("ModuleNotFoundError")),
        ("f = lambda: f()\nf()", json!(null), Err("RecursionError")),
        ("raise KeyboardInterrupt", json!(null), Err("KeyboardInterrupt")),
        ("result = object()", json!(null), Err("SandboxProcessError")),
        ("result = float('nan')", json!(null), Err("SandboxProcessError")),
        ("result = '\\ud800'", json!(null), Err("SandboxProcessError")),
        ("result = {(1, 2): 3}", json!(null), Err("SandboxProcessError")),
        ("result = []\nresult.append(result)", json!(null), Err("SandboxProcessError")),
        ("result = []\nfor _ in range(500): result = [result]", json!(null), Err("SandboxProcessError")),
        ("result = 10 ** 400", json!(null), Err("SandboxProcessError")),
        ("import os\nos._exit(0)", json!(null), Err("SandboxProcessError")),
        ("import os\nos.kill(os.getpid(), 11)", json!(null), Err("SandboxProcessError")),
    ];
    for (code, input, expected) in table {
        let (status, answer) =
            sandbox.ask(&json!({"language": "python", "code": code, "input": input, "timeout_seconds": 15})).await;
        match expected {
            Ok(result) => {
                assert_eq!(
                    (status, &answer["result"], &answer["error"]),
                    (200, &result, &Value::Null),
                    "{code}: {answer}"
                );
                assert_eq!(answer["exit_code"], 0, "{code}: {answer}");
            }
            Err(kind) => {
                assert_eq!((status, answer["error"]["type"].as_str()), (400, Some(kind)), "{code}: {answer}");
                assert_eq!(
                    (&answer["result"], &answer["timed_out"]),
                    (&Value::Null, &json!(false)),
                    "{code}: {answer}"
                );
            }
        }
        assert_eq!(answer.as_object().unwrap().keys().collect::<Vec<_>>(), KEYS, "{code}");
    }
}

/// Numbers keep all their digits; values that cannot be read are refused.
#[tokio::test]
async fn numbers_and_nesting_are_kept_or_refused() {
    let sandbox = sandbox().await;
    let post = async |body: String| {
        let answer = client().post(format!("{}/v1/execute", sandbox.url)).body(body).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let code = "result = [input, input + 1, 0.1]";
    let (status, text) =
        post(format!(r#"{{"language": "python", "code": "{code}", "input": 1180591620717411303424}}"#)).await;
    let expected =
        r#"{"language":"python","stdout":"","stderr":"","result":[1180591620717411303424,1180591620717411303425,0.1],"#;
    assert_eq!(status, 200, "{text}");
    assert!(text.starts_with(expected), "{text}");
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let (status, text) = post(format!(r#"{{"language": "python", "code": "result = 1", "input": {deep}}}"#)).await;
    assert!(status == 400 && text.contains("SandboxProcessError"), "{status} {text}");
    let (status, text) = post(r#"{"language": "python", "code": "\ud800"}"#.to_owned()).await;
    assert!(status == 400 && text.contains("invalid_code"), "{status} {text}");
    let (status, text) =
        post(r#"{"language": "python", "code": "result = len(input)", "input": "\ud800"}"#.to_owned()).await;
    assert!(status == 200 && text.contains(r#""result":1"#), "{status} {text}");
    let (status, text) = post(r#"{"language": "python", "code": "pass", "input": NaN}"#.to_owned()).await;
    assert!(status == 400 && text.contains("invalid_payload"), "{status} {text}");
}

#[tokio::test]
async fn python_error_includes_traceback_and_output() {
    let sandbox = sandbox().await;
    let answer =
        sandbox.python("print('before')\ndef f():\n    raise ValueError('no such thing')\nf()", Value::Null).await;
    assert_eq!(answer["stdout"], "before\n");
    assert_eq!(answer["error"], json!({"type": "ValueError", "message": "no such thing"}));
    let stderr = answer["stderr"].as_str().unwrap();
    assert!(stderr.contains("line 3, in f\n    raise ValueError('no such thing')"), "{stderr}");
    assert!(!stderr.contains("_main"), "what is not the code's is left out: {stderr}");
    let exits = sandbox.python("import sys\nsys.exit('gone wrong')", Value::Null).await;
    assert_eq!((&exits["exit_code"], &exits["stderr"]), (&json!(1), &json!("gone wrong\n")));
}

#[tokio::test]
async fn bash_receives_input_and_returns_result() {
    let sandbox = sandbox().await;
    let bash = async |code: &str, input: Value| {
        sandbox.ask(&json!({"language": "bash", "code": code, "input": input, "timeout_seconds": 15})).await
    };
    let (status, answer) = bash("echo out; echo err >&2\nresult=\"$input_payload\"", json!({"a": "é\n"})).await;
    let expected = json!({
        "language": "bash", "stdout": "out\n", "stderr": "err\n", "result": "{\"a\":\"é\\n\"}", "error": null,
        "exit_code": 0,
        "timed_out": false,
    });
    assert_eq!((status, answer), (200, expected));
    let (status, answer) = bash("for i in 1 2 3; do echo $i; done | sort -r | head -1; cat", Value::Null).await;
    assert_eq!((status, &answer["stdout"], &answer["result"]), (200, &json!("3\n"), &Value::Null));
    let (status, answer) = bash("set -euo pipefail\nfalse\necho never", Value::Null).await;
    assert_eq!((status, &answer["exit_code"], &answer["error"]["type"]), (400, &json!(1), &json!("ExitStatus")));
    let (status, answer) = bash("result=x; exit 7", Value::Null).await;
    assert_eq!((status, &answer["exit_code"], &answer["result"]), (400, &json!(7), &Value::Null));
    let (_, answer) = bash("if then", Value::Null).await;
    assert!(answer["stderr"].as_str().unwrap().contains("syntax error"), "{answer}");
    let (_, answer) = bash("python3 -c 'print(6*7)' > x; result=$(<x); kill -9 $$", Value::Null).await;
    assert_eq!(answer["error"]["message"], "the process was ended by signal 9", "{answer}");
    // A large input must not be passed as an argument.
    let (status, answer) = bash("result=${#input}", json!("x".repeat(1 << 20))).await;
    assert_eq!((status, &answer["result"]), (200, &json!(((1 << 20) + 2).to_string())), "{answer}");
}

#[tokio::test]
async fn policy_can_forbid_imports_but_not_grant_network() {
    let sandbox = sandbox().await;
    let ask = async |code: &str, policy: Value| {
        sandbox.ask(&json!({"language": "python", "code": code, "policy": policy, "timeout_seconds": 15})).await
    };
    let importing = "import math\nresult = math.pi > 3";
    for policy in [json!(null), json!({}), json!({"allow_imports": true}), json!({"allow_imports": null, "other": 1})] {
        assert_eq!(ask(importing, policy.clone()).await.1["result"], true, "{policy}");
    }
    let (status, answer) = ask(importing, json!({"allow_imports": false})).await;
    assert_eq!((status, &answer["error"]["type"]), (400, &json!("ImportError")), "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("allow_imports"), "{answer}");
    // Everything but imports still works, including library code that imports by itself.
    let (status, answer) = ask(
        "def f(x):\n    return sorted(x)\ntry:\n    f(3)\nexcept TypeError as e:\n    result = 'int' in str(e)",
        json!({"allow_imports": false}),
    )
    .await;
    assert_eq!((status, &answer["result"]), (200, &json!(true)), "{answer}");
    let (_, answer) = ask("import socket\nsocket.socket()", json!({"network_access": true})).await;
    assert_eq!(answer["error"]["type"], "PermissionError", "{answer}");
}

#[tokio::test]
async fn time_limit_is_clamped_to_its_bounds() {
    let sandbox = sandbox().await;
    // The minimum is a second.
    for asked in [json!(0), json!(-5), json!(0.001), json!(1)] {
        let body = json!({"language": "python", "code": "print('begun', flush=True)\nwhile True: pass",
            "timeout_seconds": asked});
        let (status, answer) = sandbox.ask(&body).await;
        assert_eq!((status, &answer["timed_out"], &answer["exit_code"]), (504, &json!(true), &Value::Null), "{answer}");
        assert_eq!(answer["error"], json!({"type": "SandboxTimeout", "message": "the code ran longer than 1 s"}));
        assert_eq!(answer["result"], Value::Null);
    }
    // A longer time is cut to the maximum; a policy's time counts if the request has none.
    let quick = |more: Value| {
        let mut body = json!({"language": "python", "code": "result = 1"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    for more in
        [json!({"timeout_seconds": 1e9}), json!({"timeout_seconds": null}), json!({"policy": {"timeout_seconds": 9.5}})]
    {
        assert_eq!(sandbox.ask(&quick(more)).await.0, 200);
    }
    let body = json!({"language": "bash", "code": "while :; do :; done", "policy": {"timeout_seconds": 1}});
    assert_eq!(sandbox.ask(&body).await.1["error"]["message"], "the code ran longer than 1 s");
}

#[tokio::test]
async fn output_and_result_are_capped_with_a_notice() {
    let sandbox = sandbox().await;
    let answer = sandbox
        .python(
            "import sys\nprint('é' * 100_000)\nprint('e' * 70_000, file=sys.stderr)\nresult = 'r' * 262_142",
            Value::Null,
        )
        .await;
    let stdout = answer["stdout"].as_str().unwrap();
    assert!(stdout.ends_with("é\n[truncated: 65536 of 200001 bytes]"), "{}", &stdout[stdout.len() - 60..]);
    assert!(answer["stderr"].as_str().unwrap().ends_with("e\n[truncated: 65536 of 70001 bytes]"));
    assert_eq!(answer["result"].as_str().unwrap().len(), 262_142, "as large as it may be");
    let answer = sandbox.python("result = 'r' * 262_143", Value::Null).await;
    assert_eq!(answer["error"]["type"], "SandboxProcessError", "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("262145 bytes, of which at most 262144"), "{answer}");
    let answer = sandbox.bash("result=$(head -c 300000 /dev/zero | tr '\\0' x)").await;
    assert_eq!(answer["error"]["type"], "SandboxProcessError", "{answer}");
    let answer = sandbox.python("import sys\nsys.stdout.buffer.write(b'a\\xff\\x00b')", Value::Null).await;
    assert_eq!(answer["stdout"], "a\u{fffd}\u{0}b");
}
