//! docs/guide/retention.md says of every table what bounds it.

use std::collections::BTreeSet;

use crate::support::db::TestDb;

const GUIDE: &str = include_str!("../../../docs/guide/retention.md");

/// Tables named in the first column of the guide's list.
fn listed() -> Vec<&'static str> {
    let list = GUIDE.split("| tables |").nth(1).expect("the guide has a list of tables");
    let rows = list.lines().skip(2).take_while(|line| line.starts_with('|'));
    let named = rows.flat_map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert!(cells.len() == 5 && cells[2].len() > 3, "{row}");
        cells[1].split(", ").map(|name| name.trim_matches('`')).collect::<Vec<_>>()
    });
    named.collect()
}

#[tokio::test]
async fn every_table_has_a_listed_bound() {
    let db = TestDb::create().await;
    let tables: Vec<String> = sqlx::query_scalar(
        "select c.relname::text from pg_class c
         where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
         order by 1",
    )
    .fetch_all(&db.pool)
    .await
    .unwrap();
    let (stored, listed): (BTreeSet<&str>, Vec<&str>) = (tables.iter().map(String::as_str).collect(), listed());
    let names: BTreeSet<&str> = listed.iter().copied().collect();
    assert_eq!(names.len(), listed.len(), "each is listed once");
    let missing: Vec<&&str> = stored.difference(&names).collect();
    assert!(missing.is_empty(), "docs/guide/retention.md does not say what bounds {missing:?}");
    let gone: Vec<&&str> = names.difference(&stored).collect();
    assert!(gone.is_empty(), "docs/guide/retention.md lists tables that are not there: {gone:?}");
}
