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
    let keys: Vec<String> = redis.command(&["KEYS", &redis.key("*")]).await;
    let mut found = Vec::new();
    for key in keys {
        let kind: String = redis.command(&["TYPE", &key]).await;
        let value: redis::Value = match kind.as_str() {
            "string" => redis.command(&["GET", &key]).await,
            "hash" => redis.command(&["HGETALL", &key]).await,
            "list" => redis.command(&["LRANGE", &key, "0", "-1"]).await,
            "zset" => redis.command(&["ZRANGE", &key, "0", "-1"]).await,
            // It has expired meanwhile.
            _ => continue,
        };
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
