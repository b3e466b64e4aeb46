//! Database functions: one file each, applied again when it changes, and called by statements of the previous
//! release.
//!
//! `.sqlx` holds every statement of this release with its parameters and columns. A release leaves a copy in
//! `tests/fixtures/releases/<version>/queries`, and the next release must run those statements on its own
//! functions.

use std::{collections::BTreeSet, fs, path::PathBuf};

use longhaul_store::database::schema;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Column, Either, Executor, PgPool, SqlSafeStr, Statement, TypeInfo};

use crate::support::db::TestDb;

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Folders of recorded statements: of this release and of earlier ones.
fn recorded() -> Vec<PathBuf> {
    let mut folders = vec![root().join(".sqlx")];
    let releases = fs::read_dir(root().join("tests/fixtures/releases")).into_iter().flatten();
    folders.extend(releases.map(|release| release.unwrap().path().join("queries")));
    folders
}

/// Returns the difference between a recorded statement and the same one prepared now.
async fn difference(pool: &PgPool, query: &Value) -> Option<String> {
    let text = query["query"].as_str().unwrap().to_owned();
    let mut connection = pool.acquire().await.unwrap();
    let statement = match connection.prepare(AssertSqlSafe(text).into_sql_str()).await {
        Ok(statement) => statement,
        Err(error) => return Some(error.to_string()),
    };
    let columns: Vec<&str> = statement.columns().iter().map(Column::name).collect();
    let before = query["describe"]["columns"].as_array().unwrap();
    let before: Vec<&str> = before.iter().map(|column| column["name"].as_str().unwrap()).collect();
    let parameters = match statement.parameters() {
        Some(Either::Left(types)) => types.iter().map(|kind| kind.name().to_lowercase()).collect(),
        Some(Either::Right(_)) | None => Vec::new(),
    };
    let recorded = query["describe"]["parameters"]["Left"].as_array().unwrap();
    if columns == before && parameters.len() == recorded.len() {
        None
    } else {
        Some(format!("columns {before:?} are {columns:?}; {} parameters are {parameters:?}", recorded.len()))
    }
}

#[tokio::test]
async fn recorded_statements_run_on_these_functions() {
    let db = TestDb::create().await;
    let mut seen = 0;
    for folder in recorded() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let query: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
            let difference = difference(&db.pool, &query).await;
            assert_eq!(difference, None, "{}: {}", path.display(), query["query"]);
            seen += 1;
        }
    }
    assert!(seen > 150, "{seen}");
}

#[tokio::test]
async fn changed_signature_breaks_recorded_statement() {
    let db = TestDb::create().await;
    sqlx::raw_sql(
        "drop function longhaul_tree_size(uuid, int);
         create function longhaul_tree_size(root uuid) returns bigint language sql as 'select 1::bigint'",
    )
    .execute(&db.pool)
    .await
    .unwrap();
    let mut broken = Vec::new();
    for entry in fs::read_dir(root().join(".sqlx")).unwrap() {
        let query: Value = serde_json::from_str(&fs::read_to_string(entry.unwrap().path()).unwrap()).unwrap();
        broken.extend(difference(&db.pool, &query).await);
    }
    assert!(!broken.is_empty());
    assert!(broken.iter().all(|what| what.contains("longhaul_tree_size")), "{broken:?}");
}

#[tokio::test]
async fn each_function_has_one_file() {
    let db = TestDb::create().await;
    let stored: Vec<String> =
        sqlx::query_scalar("select proname::text from pg_proc where proname like 'longhaul\\_%' order by 1")
            .fetch_all(&db.pool)
            .await
            .unwrap();
    // It belongs to a table, because an index is built on it.
    let mut files: BTreeSet<String> = BTreeSet::from(["longhaul_claim_rank".to_owned()]);
    files.extend(schema::function_names().map(str::to_owned));
    assert_eq!(stored, files.into_iter().collect::<Vec<_>>());
}

#[tokio::test]
async fn changed_function_is_applied_again() {
    let db = TestDb::create().await;
    let body = "select prosrc from pg_proc where proname = 'longhaul_unpark'";
    let before: String = sqlx::query_scalar(body).fetch_one(&db.pool).await.unwrap();
    sqlx::raw_sql(
        "create or replace function longhaul_unpark(execution uuid) returns void language sql as 'select';
         update database_functions set hash = '' where name = 'longhaul_unpark'",
    )
    .execute(&db.pool)
    .await
    .unwrap();
    let at = "select name from database_functions order by applied_at desc limit 1";
    let mut connection = db.pool.acquire().await.unwrap();
    schema::migrate(&mut connection).await.unwrap();
    let last: String = sqlx::query_scalar(at).fetch_one(&db.pool).await.unwrap();
    let after: String = sqlx::query_scalar(body).fetch_one(&db.pool).await.unwrap();
    assert_eq!((last.as_str(), after), ("longhaul_unpark", before));
    let applied = "select max(applied_at)::text from database_functions";
    let first: String = sqlx::query_scalar(applied).fetch_one(&db.pool).await.unwrap();
    schema::migrate(&mut connection).await.unwrap();
    let second: String = sqlx::query_scalar(applied).fetch_one(&db.pool).await.unwrap();
    assert_eq!(first, second, "nothing changed and a function was applied");
}
