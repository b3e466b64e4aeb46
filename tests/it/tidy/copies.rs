//! Rules that two parts of SQL state, because neither can include the other (docs/design/journal.md, fairness.md): the
//! copies are equal.

use super::root;

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// Words of a text, so that indentation is no difference.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The common table expression of that name, without comments.
fn expression(statement: &str, name: &str) -> String {
    let start = statement.find(&format!("\n{name} as (")).unwrap();
    let (body, _) = statement[start..].split_once("\n)").unwrap();
    let code = body.lines().filter(|line| !line.trim_start().starts_with("--"));
    words(&code.collect::<Vec<_>>().join("\n"))
}

#[test]
fn record_and_conclude_write_alike() {
    let [record, conclude] = ["record", "conclude"].map(|name| read(&format!("crates/store/src/sql/{name}.sql")));
    for name in ["recorded", "settled"] {
        assert_eq!(expression(&record, name), expression(&conclude, name), "`{name}`");
    }
    let told = expression(&record, "told");
    assert!(expression(&conclude, "told").starts_with(&told), "`told`");
    let columns = |statement: &str| {
        let (_, inserted) = statement.split_once("insert into steps as s (").unwrap();
        inserted.split_once(')').unwrap().0.matches(',').count()
    };
    assert!(columns(&record) > 10, "the text is found");
}

#[test]
fn look_and_choice_have_one_fair_order() {
    let order = words(&read("migrations/functions/longhaul_fair_order.sql"));
    let share = "coalesce(used.tokens, 0) + scan.usual * row_number() over ( partition by c.tenant_id \
                 order by c.is_batch, c.is_new, c.rank, c.id )";
    assert_eq!(order.matches(share).count(), 2);
    assert_eq!(order.matches("partition by").count(), 3, "the third numbers the places of a lane");
}
