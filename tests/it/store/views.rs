//! The views for dashboards, and what docs/reference/sql.md says of them.

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, raw_sql};

use crate::support::leases::World;

const PAGE: &str = include_str!("../../../docs/reference/sql.md");

/// The statements of the page, in order.
fn statements() -> Vec<&'static str> {
    PAGE.split("```sql\n").skip(1).map(|block| block.split("```").next().unwrap()).collect()
}

#[tokio::test]
async fn every_column_of_a_view_is_explained() {
    let world = World::create().await;
    let views: Vec<(String, i64, i64)> = sqlx::query_as(
        "select c.relname::text, count(*) filter (where d.description is null), count(*)
         from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum >= 0 and not a.attisdropped
         left join pg_description d on d.objoid = c.oid and d.objsubid = a.attnum
         where c.relkind = 'v' and c.relnamespace = 'public'::regnamespace group by 1 order by 1",
    )
    .fetch_all(world.pool())
    .await
    .unwrap();
    assert!(views.len() >= 5, "{views:?}");
    assert!(views.iter().all(|(_, unexplained, _)| *unexplained == 0), "{views:?}");
    let mute: Vec<String> = sqlx::query_scalar(
        "select relname::text from pg_class
         where relkind = 'v' and relnamespace = 'public'::regnamespace and obj_description(oid) is null",
    )
    .fetch_all(world.pool())
    .await
    .unwrap();
    assert_eq!(mute, Vec::<String>::new());
    let mentioned = views.iter().filter(|(view, ..)| PAGE.contains(&format!("| `{view}` |"))).count();
    assert_eq!(mentioned, views.len(), "each view is in the table of the page");
}

#[tokio::test]
async fn questions_of_the_page_find_what_was_stored() {
    let world = World::create().await;
    world.submit(3).await;
    let worker = world.worker().await;
    worker.claim_one().await;
    let questions: Vec<&str> = statements().into_iter().filter(|sql| sql.starts_with("select")).collect();
    assert_eq!(questions.len(), 10);
    let mut rows = Vec::new();
    for question in questions {
        let found = sqlx::query(question).fetch_all(world.pool()).await;
        rows.push(found.unwrap_or_else(|error| panic!("{error}: {question}")).len());
    }
    // Three were submitted today, of which one is held and two wait; nothing failed, called a model or needs a person.
    assert_eq!(rows, [2, 0, 0, 1, 1, 0, 0, 1, 0, 1]);
}

#[tokio::test]
async fn filters_by_time_read_no_whole_table() {
    let world = World::create().await;
    world.store.fill_with_executions(world.tenant, 20_000).await.unwrap();
    raw_sql("vacuum analyze executions").execute(world.pool()).await.unwrap();
    for column in ["created_at", "finished_at"] {
        let sql = format!(
            "explain select count(*) from execution_overview where {column} >= now() - interval '1 hour' and {column} \
             < now()"
        );
        let plan: Vec<String> = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(world.pool()).await.unwrap();
        let plan = plan.join("\n");
        assert!(!plan.contains("Seq Scan on executions"), "{plan}");
        assert!(!plan.contains("execution_payloads"), "payloads are read only if they are asked for: {plan}");
    }
}

#[tokio::test]
async fn recipe_of_a_role_hides_texts() {
    let world = World::create().await;
    world.submit(1).await;
    // Roles are of the server, which other tests share.
    let role = format!("reader_{}", uuid::Uuid::new_v4().simple());
    let recipe = statements().into_iter().find(|sql| sql.starts_with("create role")).unwrap();
    let mut connection = PgConnection::connect(&world.db.url).await.unwrap();
    connection.execute(AssertSqlSafe(recipe.replace("longhaul_reader", &role))).await.unwrap();
    connection.execute(AssertSqlSafe(format!("set role {role}"))).await.unwrap();
    let seen = "select id, status, cost_usd from execution_overview";
    assert_eq!(sqlx::query(seen).fetch_all(&mut connection).await.unwrap().len(), 1);
    for view in ["execution_stats", "execution_calls", "execution_usage", "live_workers"] {
        let sql = AssertSqlSafe(format!("select * from {view}"));
        sqlx::query(sql).fetch_all(&mut connection).await.unwrap();
    }
    let texts = ["input", "output", "metadata", "failure_summary", "failure_detail"]
        .map(|column| (column, "execution_overview"));
    let of_children = ["goal", "result", "partial_result", "error", "tools"].map(|column| (column, "sub_agents"));
    let tables = [("id", "executions"), ("input", "execution_payloads"), ("preview", "steps")];
    for (column, relation) in texts.into_iter().chain(of_children).chain(tables) {
        let refused = sqlx::query(AssertSqlSafe(format!("select {column} from {relation}")));
        let error = refused.fetch_all(&mut connection).await.unwrap_err().to_string();
        assert!(error.contains("permission denied"), "{relation}.{column}: {error}");
    }
    connection.execute("reset role").await.unwrap();
    connection.execute(AssertSqlSafe(format!("drop owned by {role}; drop role {role}"))).await.unwrap();
}
