//! `_when`: a small boolean grammar over paths and literals.
//!
//! Unlike expressions, conditions test truth: `false`, `null`, `0`, `""` and missing values are false, everything
//! else is true. `&&` binds tighter than `||`, as usual in conditions.

use std::{borrow::Cow, cmp::Ordering, fmt};

use longhaul_sdk::numbers;
use serde_json::{Number, Value};

use super::{
    path::Path,
    syntax::{Cursor, SyntaxError},
};

/// Maximum nesting of parentheses and negations.
const MAX_DEPTH: usize = 32;

/// A parsed condition and its original text.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    text: String,
    term: Term,
}

#[derive(Debug, Clone, PartialEq)]
enum Term {
    Path(Path),
    Literal(Value),
    Not(Box<Term>),
    Compare(Box<Term>, Comparison, Box<Term>),
    All(Vec<Term>),
    Any(Vec<Term>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Parser of a path or a literal.
type Operand = fn(&mut Cursor<'_>) -> Result<Term, SyntaxError>;

/// Longer operators first: `<=` begins with `<`.
const COMPARISONS: [(&str, Comparison); 6] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    ("<=", Comparison::LessOrEqual),
    (">=", Comparison::GreaterOrEqual),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
];

impl Condition {
    /// Parses a condition over the data that calls share.
    ///
    /// # Errors
    /// On a syntax error.
    pub fn parse(text: &str) -> Result<Self, SyntaxError> {
        Self::parse_over(text, reference_or_value)
    }

    /// Parses a condition over the arguments of one call, such as `arguments.amount > 100`.
    ///
    /// # Errors
    /// On a syntax error.
    pub fn parse_over_arguments(text: &str) -> Result<Self, SyntaxError> {
        Self::parse_over(text, argument_or_value)
    }

    fn parse_over(text: &str, operand: Operand) -> Result<Self, SyntaxError> {
        let mut cursor = Cursor::new(text)?;
        let term = any(&mut cursor, operand, 0)?;
        cursor.skip_space();
        if !cursor.is_at_end() {
            return Err(cursor.error(format!("unexpected {}", cursor.found())));
        }
        Ok(Self { text: text.to_owned(), term })
    }

    /// Every path that the condition reads.
    pub fn paths(&self) -> Vec<&Path> {
        let mut paths = Vec::new();
        self.term.collect(&mut paths);
        paths
    }

    /// True if the condition holds. `read` returns the value at a path, if one exists.
    pub fn holds<'a>(&'a self, read: &mut dyn FnMut(&Path) -> Option<Cow<'a, Value>>) -> bool {
        is_true(&self.term.value(read))
    }
}

impl Term {
    fn collect<'a>(&'a self, paths: &mut Vec<&'a Path>) {
        match self {
            Self::Path(path) => paths.push(path),
            Self::Literal(_) => {}
            Self::Not(term) => term.collect(paths),
            Self::Compare(left, _, right) => {
                left.collect(paths);
                right.collect(paths);
            }
            Self::All(terms) | Self::Any(terms) => terms.iter().for_each(|term| term.collect(paths)),
        }
    }

    fn value<'a>(&'a self, read: &mut dyn FnMut(&Path) -> Option<Cow<'a, Value>>) -> Cow<'a, Value> {
        let truth = match self {
            Self::Path(path) => return read(path).unwrap_or(Cow::Owned(Value::Null)),
            Self::Literal(value) => return Cow::Borrowed(value),
            Self::Not(term) => !is_true(&term.value(read)),
            Self::Compare(left, comparison, right) => comparison.holds(&left.value(read), &right.value(read)),
            Self::All(terms) => terms.iter().all(|term| is_true(&term.value(read))),
            Self::Any(terms) => terms.iter().any(|term| is_true(&term.value(read))),
        };
        Cow::Owned(Value::Bool(truth))
    }
}

impl Comparison {
    fn holds(self, left: &Value, right: &Value) -> bool {
        let order = order(left, right);
        match self {
            Self::Equal => is_equal(left, right),
            Self::NotEqual => !is_equal(left, right),
            Self::Less => order == Some(Ordering::Less),
            Self::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            Self::Greater => order == Some(Ordering::Greater),
            Self::GreaterOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        }
    }
}

/// Compares numbers by value, so that `1 == 1.0`, and other values structurally.
fn is_equal(left: &Value, right: &Value) -> bool {
    left == right || order(left, right) == Some(Ordering::Equal)
}

/// Orders two numbers (exactly, to the last digit) or two texts; other pairs have no order.
fn order(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => Some(numbers::compare(left, right)),
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        (_, _) => None,
    }
}

fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(is_true) => *is_true,
        Value::Number(number) => numbers::compare(number, &Number::from(0)) != Ordering::Equal,
        Value::String(text) => !text.is_empty(),
        Value::Array(_) | Value::Object(_) => true,
    }
}

fn any(cursor: &mut Cursor<'_>, operand: Operand, depth: usize) -> Result<Term, SyntaxError> {
    let mut terms = vec![all(cursor, operand, depth)?];
    while cursor.take_any(&["||"]).is_some() {
        terms.push(all(cursor, operand, depth)?);
    }
    Ok(one_or(terms, Term::Any))
}

fn all(cursor: &mut Cursor<'_>, operand: Operand, depth: usize) -> Result<Term, SyntaxError> {
    let mut terms = vec![comparison(cursor, operand, depth)?];
    while cursor.take_any(&["&&"]).is_some() {
        terms.push(comparison(cursor, operand, depth)?);
    }
    Ok(one_or(terms, Term::All))
}

fn comparison(cursor: &mut Cursor<'_>, operand: Operand, depth: usize) -> Result<Term, SyntaxError> {
    let left = unary(cursor, operand, depth)?;
    cursor.skip_space();
    let Some((_, comparison)) = COMPARISONS.iter().find(|(token, _)| cursor.take(token)) else { return Ok(left) };
    // Models that know JavaScript write `===` and `!==`.
    if matches!(comparison, Comparison::Equal | Comparison::NotEqual) {
        cursor.take("=");
    }
    Ok(Term::Compare(Box::new(left), *comparison, Box::new(unary(cursor, operand, depth)?)))
}

fn unary(cursor: &mut Cursor<'_>, operand: Operand, depth: usize) -> Result<Term, SyntaxError> {
    cursor.skip_space();
    if depth >= MAX_DEPTH {
        return Err(cursor.error(format!("a condition may be nested {MAX_DEPTH} deep")));
    }
    if cursor.take("!") {
        return Ok(Term::Not(Box::new(unary(cursor, operand, depth + 1)?)));
    }
    if cursor.take("(") {
        let inner = any(cursor, operand, depth + 1)?;
        return match cursor.take_any(&[")"]) {
            Some(_) => Ok(inner),
            None => Err(cursor.error(format!("expected `)`, found {}", cursor.found()))),
        };
    }
    operand(cursor)
}

fn reference_or_value(cursor: &mut Cursor<'_>) -> Result<Term, SyntaxError> {
    match cursor.literal()? {
        Some(literal) => Ok(Term::Literal(literal)),
        None => Path::read(cursor, false).map(Term::Path),
    }
}

fn argument_or_value(cursor: &mut Cursor<'_>) -> Result<Term, SyntaxError> {
    if let Some(path) = Path::read_argument(cursor)? {
        return Ok(Term::Path(path));
    }
    match cursor.literal()? {
        Some(literal) => Ok(Term::Literal(literal)),
        None => Err(cursor.error(format!("expected a value or a place in `arguments`, found {}", cursor.found()))),
    }
}

fn one_or(mut terms: Vec<Term>, many: impl Fn(Vec<Term>) -> Term) -> Term {
    match terms.pop() {
        Some(only) if terms.is_empty() => only,
        Some(last) => {
            terms.push(last);
            many(terms)
        }
        None => many(terms),
    }
}

/// Displays the text as the model wrote it.
impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn holds(text: &str, state: &Value) -> bool {
        Condition::parse(text).unwrap().holds(&mut |path| path.find(state).map(Cow::Borrowed))
    }

    #[test]
    fn path_holds_by_truth_not_by_existence() {
        for falsy in [json!(null), json!(false), json!(0), json!(-0.0), json!("")] {
            assert!(!holds("†state.a", &json!({ "a": falsy })), "{falsy}");
            assert!(holds("!†state.a", &json!({ "a": falsy })), "{falsy}");
        }
        for truthy in [json!(true), json!(1), json!("0"), json!([]), json!({})] {
            assert!(holds("†state.a", &json!({ "a": truthy })), "{truthy}");
        }
        assert!(!holds("†state.a", &json!({})));
        assert!(holds("!†state.a", &json!({})));
    }

    #[test]
    fn comparisons_and_connectives_have_usual_precedence() {
        let state = json!({"n": 5, "s": "open", "list": [1, 2], "no": false});
        for (text, expected) in [
            ("†state.n == 5.0", true),
            ("†state.n === 5", true),
            ("†state.n != 5", false),
            ("†state.n !== 4", true),
            ("†state.n < 5", false),
            ("†state.n <= 5 && †state.n >= 5", true),
            ("†state.n > 4.5", true),
            ("†state.s == 'open'", true),
            ("†state.s == \"closed\" || †state.n > 1", true),
            ("†state.s < \"p\"", true),
            ("†state.s < 3", false),
            ("†state.s >= 3", false),
            ("†state.list.1 == 2", true),
            ("†state.gone == null", true),
            ("†state.no || †state.n && †state.no", false),
            ("(†state.no || †state.n) && !†state.no", true),
            ("!(†state.n == 5)", false),
            ("true", true),
        ] {
            assert_eq!(holds(text, &state), expected, "{text}");
        }
    }

    #[test]
    fn long_numbers_compare_exactly() {
        let text = r#"{"wei": 12345678901234567890123, "tiny": 0.10000000000000000000001}"#;
        let state: Value = serde_json::from_str(text).unwrap();
        for (text, expected) in [
            ("†state.wei == 12345678901234567890123", true),
            ("†state.wei == 12345678901234567890124", false),
            ("†state.wei > 12345678901234567890122", true),
            ("†state.tiny > 0.1", true),
            ("†state.tiny == 0.100000000000000000000010", true),
        ] {
            assert_eq!(holds(text, &state), expected, "{text}");
        }
        let oversized = format!("†state.wei < {}", "9".repeat(129));
        assert!(Condition::parse(&oversized).unwrap_err().to_string().contains("more than 128 digits"));
    }

    #[test]
    fn policy_condition_reads_call_arguments_by_name() {
        let condition = Condition::parse_over_arguments("arguments.amount > 100 || arguments[\"to\"] == 'B'").unwrap();
        let arguments = json!({"amount": 7, "to": "B"});
        assert!(condition.holds(&mut |path| path.find(&arguments).map(Cow::Borrowed)));
        for wrong in ["amount > 100", "†state.a", "†arguments.a"] {
            assert!(Condition::parse_over_arguments(wrong).is_err(), "{wrong}");
        }
        assert!(Condition::parse("†arguments.amount").is_err(), "no call can read it");
    }

    #[test]
    fn unparsable_condition_names_the_reason() {
        for (text, reason) in [
            ("", "expected a reference"),
            ("state.a", "`state` is neither a reference"),
            ("†state.a =", "unexpected `=`"),
            ("†state.a == 'x", "the quoted text does not end"),
            ("(†state.a", "expected `)`, found the end"),
            ("†state.a == 1 2", "unexpected `2`"),
            ("†state.a && ", "found the end"),
        ] {
            let error = Condition::parse(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
        let deep = "!".repeat(100);
        assert!(Condition::parse(&deep).unwrap_err().to_string().contains("nested 32 deep"));
    }

    #[test]
    fn condition_lists_its_paths_and_keeps_its_text() {
        let condition = Condition::parse("!(†state.a == †data.b) || †input.c").unwrap();
        let paths: Vec<_> = condition.paths().iter().map(ToString::to_string).collect();
        assert_eq!(paths, ["†state.a", "†data.b", "†input.c"]);
        assert_eq!(condition.to_string(), "!(†state.a == †data.b) || †input.c");
    }
}
