//! A database per test.

use sqlx::{Connection, PgConnection};

use crate::support::db::TestDb;
use crate::support::servers::shared_postgres_url;
use crate::support::wait::{SOON, eventually};

#[tokio::test]
async fn two_tests_do_not_see_each_other() {
    let (one, other) = tokio::join!(TestDb::create(), TestDb::create());
    sqlx::query("create table only_here (n int)").execute(&one.pool).await.unwrap();
    let elsewhere: Option<String> =
        sqlx::query_scalar("select to_regclass('only_here')::text").fetch_one(&other.pool).await.unwrap();
    assert_eq!(elsewhere, None);
    let through_url: String = {
        let mut connection = PgConnection::connect(&one.url).await.unwrap();
        sqlx::query_scalar("select current_database()::text").fetch_one(&mut connection).await.unwrap()
    };
    assert_eq!(through_url, one.name);
}

#[tokio::test]
async fn every_migration_is_applied() {
    let db = TestDb::create().await;
    let applied: i64 =
        sqlx::query_scalar("select count(*) from _sqlx_migrations where success").fetch_one(&db.pool).await.unwrap();
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../migrations")).unwrap();
    let files = files.flatten().filter(|file| file.path().extension().is_some_and(|kind| kind == "sql")).count();
    assert_eq!(usize::try_from(applied).unwrap(), files);
}

#[tokio::test]
async fn database_is_dropped_despite_open_connections() {
    let db = TestDb::create().await;
    let name = db.name.clone();
    let mut held = PgConnection::connect(&db.url).await.unwrap();
    sqlx::query("select 1").execute(&mut held).await.unwrap();
    drop(db);
    let mut admin = PgConnection::connect(shared_postgres_url()).await.unwrap();
    // The janitor may have to drop the databases of many other tests first.
    eventually("the database is dropped", 60 * SOON, async || {
        let left: i64 = sqlx::query_scalar("select count(*) from pg_database where datname = $1")
            .bind(&name)
            .fetch_one(&mut admin)
            .await
            .map_err(|error| error.to_string())?;
        if left == 0 { Ok(()) } else { Err("it exists".to_owned()) }
    })
    .await;
}
