//! The previous release's binary must run on this release's schema, so every migration after the first release only
//! adds.
//!
//! The check reads the text of each statement, because the older binary is not available. It skips function bodies;
//! the store's tests cover their effect on rows.

use std::fs;

use regex::Regex;

/// Last migration of the baseline, which is part of the first release; no older binary runs beside it.
const BASELINE: &str = "20261123211013_views.sql";

/// Exceptions to the check, each with its reason: (migration, part of the statement, reason).
const ALLOWED: [(&str, &str, &str); 7] = [
    (
        "20261126114500_channels.sql",
        "webhook_endpoints_of_slack",
        "the release before writes webhooks of the kind standard alone, which keep the rules of the others",
    ),
    (
        "20261126113000_queue_limits.sql",
        "limit_rules_expression_check",
        "it admits all that the rule before admitted, and queues",
    ),
    (
        "20261127100000_due_indexes.sql",
        "drop index if exists executions_held",
        "no statement conflicts on it, and `executions_held_until` begins with the same column",
    ),
    (
        "20261127100000_due_indexes.sql",
        "drop index if exists parked_held",
        "no statement conflicts on it, and `parked_walk` has its rows in the same order",
    ),
    (
        "20261127100000_due_indexes.sql",
        "drop index if exists idempotency_keys_age",
        "no statement conflicts on it, and `idempotency_keys_created` is over the same column",
    ),
    (
        "20261128110000_watched_rates.sql",
        "drop index if exists provider_breakers_watched",
        "no statement conflicts on it, and `provider_breakers_known` has all its rows in the same order",
    ),
    (
        "20261128130000_writers_of_webhooks.sql",
        "webhook_endpoints_disabled_because_check",
        "it admits all that the rule before admitted, and revoked keys",
    ),
];

/// Patterns of statements that break the older binary.
const FORBIDDEN: [(&str, &str); 10] = [
    ("drop of something it uses", r"\bdrop\s+(table|column|view|type|function|schema|sequence|trigger)\b"),
    ("drop of an index it may conflict on", r"\bdrop\s+index\b"),
    ("rename", r"\brename\b"),
    ("another type of a column", r"\balter\s+(column\s+)?\w+\s+(set\s+data\s+)?type\b"),
    ("a value that it leaves out", r"\bset\s+not\s+null\b"),
    ("a default that it relies on", r"\bdrop\s+default\b"),
    (
        "a rule that its rows may break",
        r"\balter\s+table\b[^;]*\badd\s+(constraint|check|unique|primary|foreign|exclude)\b",
    ),
    ("an index that its rows may break", r"\bcreate\s+unique\s+index\b"),
    ("a trigger under its writes", r"\bcreate\s+(or\s+replace\s+)?trigger\b"),
    ("rows taken away", r"\b(truncate|delete\s+from)\b"),
];

/// Returns the statements of a migration without comments, strings and function bodies.
fn statements(sql: &str) -> Vec<String> {
    let sql = Regex::new(r"(?s)\$(\w*)\$.*?\$\w*\$").unwrap().replace_all(sql, "''");
    let sql = Regex::new(r"--[^\n]*").unwrap().replace_all(&sql, "");
    let sql = Regex::new(r"'[^']*'").unwrap().replace_all(&sql, "''");
    let spaces = Regex::new(r"\s+").unwrap();
    sql.split(';')
        .map(|part| spaces.replace_all(part.trim(), " ").to_lowercase())
        .filter(|part| !part.is_empty())
        .collect()
}

/// Returns the reasons why the previous release cannot run on the schema after `sql`.
fn breaks(sql: &str) -> Vec<(String, &'static str)> {
    let statements = statements(sql);
    let made = Regex::new(r"^create table (?:if not exists )?(\w+)").unwrap();
    let made: Vec<String> =
        statements.iter().filter_map(|statement| Some(made.captures(statement)?[1].to_owned())).collect();
    // The older binary writes no rows to a table that this migration creates.
    let is_new = |statement: &str| {
        let on =
            Regex::new(r"^(?:alter table (?:only )?|create unique index (?:concurrently )?(?:\w+ )?on )(\w+)").unwrap();
        on.captures(statement).is_some_and(|on| made.contains(&on[1].to_owned()))
    };
    let column = Regex::new(r"\badd column (?:if not exists )?[^,]*(?:\([^)]*\)[^,]*)*").unwrap();
    let mut found = Vec::new();
    for statement in statements.iter().filter(|statement| !is_new(statement)) {
        for (what, words) in FORBIDDEN {
            if Regex::new(words).unwrap().is_match(statement) {
                found.push((statement.clone(), what));
            }
        }
        let needs_value = |column: &str| column.contains("not null") && !column.contains("default");
        if column.find_iter(statement).any(|column| needs_value(column.as_str())) {
            found.push((statement.clone(), "a new column that it gives no value"));
        }
    }
    found
}

#[test]
fn migrations_after_the_first_release_only_add() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../migrations");
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name.ends_with(".sql"));
    names.sort();
    assert!(names.iter().any(|name| name == BASELINE), "{names:?}");
    let mut unused: Vec<(&str, &str, &str)> = ALLOWED.to_vec();
    for name in names.iter().filter(|name| name.as_str() > BASELINE) {
        let text = fs::read_to_string(format!("{folder}/{name}")).unwrap();
        for (statement, what) in breaks(&text) {
            let allowed = |(migration, part, _): &(&str, &str, &str)| migration == name && statement.contains(part);
            assert!(ALLOWED.iter().any(allowed), "{name}: the release before cannot run on this ({what}): {statement}");
            unused.retain(|entry| !allowed(entry));
        }
    }
    assert!(unused.is_empty(), "allowed and not there: {unused:?}");
    assert!(ALLOWED.iter().all(|(_, _, reason)| reason.len() > 20), "a reason says why");
}

#[test]
fn statements_breaking_the_previous_release_are_found() {
    for bad in [
        "alter table executions drop column lane;",
        "drop table parked;",
        "alter table executions rename column lane to lanes;",
        "ALTER TABLE steps\n  ADD COLUMN format int NOT NULL;",
        "alter table steps add column a int default 0, add column b text not null;",
        "alter table steps add constraint small check (seq < 5);",
        "alter table executions alter column lane set not null;",
        "alter table executions alter column lane type int;",
        "create unique index one on executions (lane);",
        "delete from events;",
        "create trigger loud before insert on executions for each row execute function f();",
    ] {
        assert!(!breaks(bad).is_empty(), "{bad}");
    }
    for good in [
        "alter table steps add column format int; -- drop table steps;",
        "alter table steps add column n int not null default 0, add column m text;",
        "create table t (a int not null, check (a > 0)); create unique index t_a on t (a);",
        "create index i on executions (lane);",
        "create function f() returns int language sql as $$ delete from events; select 1 $$;",
        "create or replace view v as select 'drop table x' as word;",
    ] {
        assert_eq!(breaks(good), [], "{good}");
    }
}
