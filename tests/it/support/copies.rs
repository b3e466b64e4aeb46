//! Looks for copies of a text in everything that is stored: each column of each table, decoded, and each key of Redis.

use longhaul_store::history::body;
use sqlx::{AssertSqlSafe, PgPool};

use super::redis::TestRedis;

/// Columns of the database whose values hold `text`, as `table.column`.
pub(crate) async fn in_database(pool: &PgPool, text: &str) -> Vec<String> {
    let columns: Vec<(String, String, String)> = sqlx::query_as(
        "select c.table_name::text, c.column_name::text, c.udt_name::text from information_schema.columns c
         join information_schema.tables t using (table_schema, table_name)
         where c.table_schema = 'public' and t.table_type = 'BASE TABLE' order by 1, 2",
    )
    .fetch_all(pool)
    .await
    .unwrap();
    let mut found = Vec::new();
    for (table, column, kind) in columns {
        let values: Vec<Vec<u8>> = match kind.as_str() {
            "bytea" => read(pool, format!("select \"{column}\" from {table} where \"{column}\" is not null")).await,
            "_bytea" => read(pool, format!("select unnest(\"{column}\") from {table}")).await,
            _ => {
                let sql = format!(
                    "select convert_to(\"{column}\"::text, 'UTF8') from {table} where \"{column}\" is not null"
                );
                read(pool, sql).await
            }
        };
        if values.iter().any(|value| holds(value, text)) {
            found.push(format!("{table}.{column}"));
        }
    }
    found
}

async fn read(pool: &PgPool, sql: String) -> Vec<Vec<u8>> {
    sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(pool).await.unwrap()
}

/// True if the value holds the text, as it is or decoded.
fn holds(value: &[u8], text: &str) -> bool {
    let has = |bytes: &[u8]| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    has(value) || body::decode(value).is_ok_and(|decoded| has(&decoded))
}

/// Keys of a test's prefix whose values hold `text`.
pub(crate) async fn in_redis(redis: &TestRedis, text: &str) -> Vec<String> {
    let client = redis::Client::open(redis.url.as_str()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let keys: Vec<String> =
        redis::cmd("KEYS").arg(format!("{{{}:*", redis.prefix)).query_async(&mut connection).await.unwrap();
    let mut found = Vec::new();
    for key in keys {
        let kind: String = redis::cmd("TYPE").arg(&key).query_async(&mut connection).await.unwrap();
        let mut command = match kind.as_str() {
            "string" => redis::cmd("GET"),
            "hash" => redis::cmd("HGETALL"),
            "list" => redis::cmd("LRANGE"),
            "zset" => redis::cmd("ZRANGE"),
            // It has expired meanwhile.
            _ => continue,
        };
        command.arg(&key);
        if matches!(kind.as_str(), "list" | "zset") {
            command.arg(0).arg(-1);
        }
        let value: redis::Value = command.query_async(&mut connection).await.unwrap();
        let values = match value {
            redis::Value::Array(values) => values,
            value => vec![value],
        };
        let holds = |value: &redis::Value| matches!(value, redis::Value::BulkString(bytes) if holds(bytes, text));
        if values.iter().any(holds) {
            found.push(key);
        }
    }
    found
}
