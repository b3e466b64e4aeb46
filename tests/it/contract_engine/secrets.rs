//! Keys of bindings: only their provider receives them.

use longhaul_config::{Config, Sources};
use longhaul_guards::sealing::Sealer;
use longhaul_store::history::body;
use serde_json::json;
use sqlx::Row;

use super::kit::{Answer, Engine, says};
use crate::support::process::WorkerProcess;

const VARIABLE: &str = "s3cret-of-the-variable";
const LITERAL: &str = "s3cret-of-the-request";
const KEY: &str = "a key of at least thirty-two characters";

/// Returns every row of the database as text, with decoded bodies.
async fn stored(engine: &Engine) -> String {
    let pool = &engine.fleet.db.pool;
    let tables: Vec<String> = sqlx::query_scalar(
        "select quote_ident(table_name) from information_schema.tables
         where table_schema = 'public' and table_type = 'BASE TABLE'",
    )
    .fetch_all(pool)
    .await
    .unwrap();
    let mut all = String::new();
    for table in tables {
        let rows: Vec<String> = sqlx::query_scalar(sqlx::AssertSqlSafe(format!("select t::text from {table} t")))
            .fetch_all(pool)
            .await
            .unwrap();
        all.extend(rows);
    }
    let bodies = "select body from steps union all select unnest(appends) from steps";
    for row in sqlx::query(bodies).fetch_all(pool).await.unwrap() {
        all.push_str(&String::from_utf8_lossy(&body::decode(row.get("body")).unwrap()));
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn binding_key_appears_in_no_row_or_log() {
    let mut engine = Engine::start().await;
    engine.fleet.set("LONGHAUL__CONTRACT__SECRET_KEYS", KEY);
    engine.fleet.set("PROVIDER_TEST_KEY", VARIABLE);
    engine.fleet.set("LONGHAUL__TELEMETRY__LOG_FILTER", "debug,hyper=info,h2=info");
    let sources = Sources { file: None, environment: engine.fleet.environment().clone(), flags: Vec::new() };
    let sealer = Sealer::new(&Config::load(&sources).unwrap().contract.secret_keys().unwrap());
    let sealed = sealer.seal(LITERAL).unwrap();
    let worker = WorkerProcess::start(&engine.fleet).await;
    let with_key = |reference: &str| {
        let mut run = engine.run();
        run.platform_runtime.0["capabilities"]["llm_inference"]["config"]["secret_refs"] =
            json!({ "api_key": reference });
        run
    };
    for (reference, secret) in [("env://PROVIDER_TEST_KEY", VARIABLE), (sealed.as_str(), LITERAL)] {
        let sent = engine.model.seen().len();
        engine.model.json(says("x"));
        let id = engine.submit(&with_key(reference), json!({"prompt": "p"})).await;
        assert_eq!(engine.ended(id).await.text(), "x");
        assert_eq!(engine.model.seen()[sent].header("authorization"), Some(format!("Bearer {secret}").as_str()));
        // The provider repeats the key in its refusal.
        let echo = format!("the key {secret} (Bearer {secret}) is not known");
        engine.model.push(Answer::Json(401, json!({"error": {"message": echo, "code": secret}})));
        let id = engine.submit(&with_key(reference), json!({"prompt": "p"})).await;
        let refused = engine.ended(id).await;
        assert_eq!(refused.code(), "EXEC_INTERNAL_ERROR");
        assert!(refused.detail["upstream"]["message"].as_str().unwrap().contains("[redacted]"), "{}", refused.detail);
    }
    // A value sealed with another key is reported without its content.
    let id = engine.submit(&with_key("sealed:v1:AAAA"), json!({"prompt": "p"})).await;
    let failed = engine.ended(id).await;
    assert_eq!((failed.code(), &failed.detail["secret_ref"]), ("EXEC_INTERNAL_ERROR", &json!("sealed")));
    let (log, rows) = (worker.log(), stored(&engine).await);
    assert!(log.contains("execution failed"), "the log was read");
    assert!(rows.contains("model.default"), "the rows were read");
    for secret in [VARIABLE, LITERAL] {
        assert!(!log.contains(secret), "a secret is in the log");
        assert!(!rows.contains(secret) && !rows.contains(&hex::encode(secret)), "a secret is in the database");
    }
}
