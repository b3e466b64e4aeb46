//! Statements and database functions take rows instead of many positional parameters.

use super::texts;

/// Most positional parameters of a statement or a function; beyond that the values of one row are a row type.
const MAX_PARAMETERS: usize = 8;

/// The greatest number of a positional parameter in a text.
fn parameters(text: &str) -> usize {
    let numbers = text.split('$').skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok()
    });
    numbers.max().unwrap_or(0)
}

/// Number of input parameters of the function that a file defines.
fn arguments(definition: &str) -> usize {
    let (_, rest) = definition.split_once("create or replace function ").unwrap();
    let list = rest[..rest.find("language").unwrap()].split_once('(').unwrap().1;
    let (mut depth, mut found, mut current) = (0, Vec::new(), String::new());
    for c in list.chars() {
        match c {
            ')' if depth == 0 => break,
            ',' if depth == 0 => found.push(std::mem::take(&mut current)),
            c => {
                depth += i32::from(c == '(') - i32::from(c == ')');
                current.push(c);
            }
        }
    }
    found.push(current);
    found.iter().map(|of| of.trim()).filter(|of| !of.is_empty() && !of.starts_with("out ")).count()
}

#[test]
fn statements_take_few_parameters() {
    for (path, text) in texts("crates/store/src", &["rs", "sql"]) {
        let most = parameters(&text);
        assert!(most <= MAX_PARAMETERS, "{path}: a statement has {most} parameters; let it take rows");
    }
    let functions = texts("migrations/functions", &["sql"]);
    assert!(functions.len() > 40, "{}", functions.len());
    for (path, text) in functions {
        let most = arguments(&text);
        assert!(most <= MAX_PARAMETERS, "{path} has {most} parameters; let it take rows");
    }
}

#[test]
fn parameters_are_counted() {
    assert_eq!(parameters("select $1, $12::text, '$x'"), 12);
    assert_eq!(parameters("select 1"), 0);
    let function = "create or replace function f(a int, b numeric(1, 2), out c int) returns int language sql";
    assert_eq!(arguments(function), 2);
    assert_eq!(arguments("create or replace function f() returns table (a int, b int) language sql"), 0);
}
