//! Expressions over paths: the sources of an argument and the destinations of a result.
//!
//! `a || b` is the first operand that exists, `a && b` the last once all exist. Existence decides, not truth: 0 is
//! a value. `||` binds tighter than `&&`. `<|>` and `*>` are synonyms; the canonical text has `||` and `&&`.

use std::{borrow::Cow, fmt};

use serde_json::Value;

use super::{
    path::Path,
    syntax::{Cursor, DAGGER, SyntaxError},
};

const OR: [&str; 2] = ["||", "<|>"];
const AND: [&str; 2] = ["&&", "*>"];
/// Operators that models write and this grammar lacks, each with a hint for the error message.
const FOREIGN: [(&str, &str); 6] = [
    ("|>", "there are no pipes; call a tool for each step"),
    ("??", "write `||` for the first that exists"),
    ("(", "there are no parentheses; `||` binds tighter than `&&`"),
    ("==", "a reference is no condition; conditions go into `_when`"),
    ("+", "texts are not joined; pass them in parts"),
    ("†", "two references need `||` or `&&` between them"),
];

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operand {
    /// The value at a path.
    Path(Path),
    /// A constant, which always exists.
    Literal(Value),
}

/// Groups of alternatives. Each group yields its first operand that exists; the last group yields the value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct InputExpression(Vec<Vec<Operand>>);

/// Result of evaluating an input expression.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Evaluated<'a> {
    /// The value and its source path; `None` for a literal.
    Value { value: Cow<'a, Value>, from: Option<&'a Path> },
    /// Groups without a value.
    Missing(Vec<MissingGroup>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MissingGroup {
    /// Paths of the group; a value at any of them satisfies it.
    pub any_of: Vec<Path>,
    /// True if the group also has a literal, used once no path is awaited any more.
    pub has_literal: bool,
}

impl InputExpression {
    /// Parses a whole text. If `is_bare`, daggers are optional.
    ///
    /// # Errors
    /// On a syntax error, or if the text has no path.
    pub(crate) fn parse(text: &str, is_bare: bool) -> Result<Self, SyntaxError> {
        let operand = |cursor: &mut Cursor<'_>| {
            if !is_bare
                && !cursor.rest().starts_with(DAGGER)
                && let Some(literal) = cursor.literal()?
            {
                return Ok(Operand::Literal(literal));
            }
            Path::read(cursor, is_bare).map(Operand::Path)
        };
        let groups = groups(text, operand)?;
        if groups.iter().flatten().all(|operand| matches!(operand, Operand::Literal(_))) {
            return Err(Cursor::new(text)?.error("there is no reference in it"));
        }
        Ok(Self(groups))
    }

    /// Every path that the expression may read.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().flatten().filter_map(|operand| match operand {
            Operand::Path(path) => Some(path),
            Operand::Literal(_) => None,
        })
    }

    /// Evaluates the expression; `read` returns the value at a path if one exists. A literal counts only once no
    /// path before it `is_awaited`: otherwise timing would decide between the literal and the value of an earlier
    /// call.
    pub(crate) fn evaluate<'a>(
        &'a self,
        read: &dyn Fn(&Path) -> Option<Cow<'a, Value>>,
        is_awaited: &dyn Fn(&Path) -> bool,
    ) -> Evaluated<'a> {
        let mut missing = Vec::new();
        let mut last = None;
        for group in &self.0 {
            let mut any_of = Vec::new();
            let first = group.iter().find_map(|operand| match operand {
                Operand::Path(path) => {
                    any_of.push(path.clone());
                    read(path).map(|value| (value, Some(path)))
                }
                Operand::Literal(_) if any_of.iter().any(is_awaited) => None,
                Operand::Literal(value) => Some((Cow::Borrowed(value), None)),
            });
            if first.is_none() {
                let has_literal = group.iter().any(|operand| matches!(operand, Operand::Literal(_)));
                missing.push(MissingGroup { any_of, has_literal });
            }
            last = first;
        }
        match last {
            Some((value, from)) if missing.is_empty() => Evaluated::Value { value, from },
            Some(_) | None => Evaluated::Missing(missing),
        }
    }
}

/// Groups of alternative destinations. A result goes to exactly one path of each group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputExpression(Vec<Vec<Path>>);

impl OutputExpression {
    /// Parses a whole text without checking that the paths are writable. If `is_bare`, daggers are optional.
    ///
    /// # Errors
    /// On a syntax error.
    pub fn parse(text: &str, is_bare: bool) -> Result<Self, SyntaxError> {
        groups(text, |cursor| Path::read(cursor, is_bare)).map(Self)
    }

    /// Every path that the expression may write.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().flatten()
    }

    /// Paths to write: in each group the path that the tool `named`, or the first if the group does not contain it.
    ///
    /// # Errors
    /// If the tool named a path that is in no group.
    pub fn choose(&self, named: Option<&Path>) -> Result<Vec<Path>, String> {
        if let Some(named) = named
            && !self.paths().any(|path| path == named)
        {
            return Err(format!("the tool chose {named} for its result, which is not one of {self}"));
        }
        let choice = |group: &Vec<Path>| group.iter().find(|path| Some(*path) == named).or(group.first()).cloned();
        Ok(self.0.iter().filter_map(choice).collect())
    }
}

/// Parses `a || b && c` into groups of alternatives.
fn groups<T>(
    text: &str,
    operand: impl Fn(&mut Cursor<'_>) -> Result<T, SyntaxError>,
) -> Result<Vec<Vec<T>>, SyntaxError> {
    let mut cursor = Cursor::new(text)?;
    let mut groups = vec![Vec::new()];
    loop {
        cursor.skip_space();
        let operand = operand(&mut cursor)?;
        if let Some(group) = groups.last_mut() {
            group.push(operand);
        }
        if cursor.take_any(&OR).is_some() {
            continue;
        }
        if cursor.take_any(&AND).is_some() {
            groups.push(Vec::new());
            continue;
        }
        if cursor.is_at_end() {
            return Ok(groups);
        }
        let hint = FOREIGN.iter().find(|(token, _)| cursor.rest().starts_with(token)).map(|(_, hint)| *hint);
        let hint = hint.unwrap_or("a reference is the whole text; pass other text in another argument");
        return Err(cursor.error(format!("unexpected {}: {hint}", cursor.found())));
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.fmt(f),
            Self::Literal(value) => value.fmt(f),
        }
    }
}

impl fmt::Display for InputExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_groups(&self.0, f)
    }
}

impl fmt::Display for OutputExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_groups(&self.0, f)
    }
}

fn write_groups<T: fmt::Display>(groups: &[Vec<T>], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (at, group) in groups.iter().enumerate() {
        f.write_str(if at == 0 { "" } else { " && " })?;
        for (at, operand) in group.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { " || " })?;
            operand.fmt(f)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The value and its path, or the missing groups.
    fn evaluate(text: &str, state: &Value) -> Result<(Value, Option<String>), Vec<Vec<Path>>> {
        let expression = InputExpression::parse(text, false).unwrap();
        match expression.evaluate(&|path| path.find(state).map(Cow::Borrowed), &|_| false) {
            Evaluated::Value { value, from } => Ok((value.into_owned(), from.map(ToString::to_string))),
            Evaluated::Missing(missing) => Err(missing.into_iter().map(|group| group.any_of).collect()),
        }
    }

    fn value(text: &str, state: &Value) -> Value {
        evaluate(text, state).unwrap().0
    }

    fn path(text: &str) -> Path {
        text.parse().unwrap()
    }

    #[test]
    fn alternatives_test_existence_and_prefer_the_left() {
        for falsy in [json!(0), json!(false), json!(""), json!(null), json!([]), json!({})] {
            assert_eq!(value("†state.a || †state.b", &json!({"a": falsy, "b": 1})), falsy);
        }
        assert_eq!(value("†state.a || †state.b", &json!({"b": 1})), json!(1));
        assert_eq!(value("†state.count <|> 5", &json!({"count": 0})), json!(0));
        assert_eq!(value("†state.count || 5", &json!({})), json!(5));
        assert_eq!(value("†state.a || 'none'", &json!({})), json!("none"));
        let missing = vec![vec![path("†state.a"), path("†state.b")]];
        assert_eq!(evaluate("†state.a || †state.b", &json!({})), Err(missing));
    }

    #[test]
    fn literal_waits_for_an_awaited_path() {
        let expression = InputExpression::parse("†state.a || †state.b || 5 || †state.c", false).unwrap();
        let evaluate = |state: &Value, awaited: &str| match expression
            .evaluate(&|at| at.find(state).map(Cow::Borrowed), &|at| *at == path(awaited))
        {
            Evaluated::Value { value, .. } => Some(value.into_owned()),
            Evaluated::Missing(missing) => {
                assert!(missing[0].has_literal);
                None
            }
        };
        assert_eq!(evaluate(&json!({}), "†state.b"), None);
        assert_eq!(evaluate(&json!({"b": 1}), "†state.a"), Some(json!(1)));
        assert_eq!(evaluate(&json!({}), "†state.c"), Some(json!(5)), "what stands behind the literal is never read");
    }

    #[test]
    fn conjunctions_need_all_and_give_the_last() {
        assert_eq!(value("†state.a && †state.b", &json!({"a": 0, "b": 2})), json!(2));
        assert_eq!(value("†state.a *> †state.b", &json!({"a": false, "b": 2})), json!(2));
        let missing = vec![vec![path("†state.a")]];
        assert_eq!(evaluate("†state.a && †state.b", &json!({"b": 2})), Err(missing));
    }

    #[test]
    fn alternatives_bind_tighter_than_conjunctions() {
        let state = json!({"b": 2, "c": 3});
        assert_eq!(value("†state.a || †state.b && †state.c", &state), json!(3));
        assert_eq!(value("†state.c && †state.a || †state.b", &state), json!(2));
    }

    #[test]
    fn a_value_remembers_its_path() {
        let from = |text| evaluate(text, &json!({"b": 1})).unwrap().1;
        assert_eq!(from("†state.a || †state.b").as_deref(), Some("†state.b"));
        assert_eq!(from("†state.a || 1"), None);
    }

    #[test]
    fn output_writes_one_path_of_each_group() {
        let parse = |text| OutputExpression::parse(text, false).unwrap();
        let texts = |paths: Vec<Path>| paths.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts(parse("†state.x && †data.y").choose(None).unwrap()), ["†state.x", "†data.y"]);
        let either = parse("†state.x || †state.y");
        assert_eq!(texts(either.choose(None).unwrap()), ["†state.x"]);
        assert_eq!(texts(either.choose(Some(&path("†state.y"))).unwrap()), ["†state.y"]);
        let refused = either.choose(Some(&path("†state.z"))).unwrap_err();
        assert_eq!(refused, "the tool chose †state.z for its result, which is not one of †state.x || †state.y");
        let both = parse("†state.x <|> †state.y *> †data.log");
        assert_eq!(texts(both.choose(Some(&path("†state.y"))).unwrap()), ["†state.y", "†data.log"]);
    }

    #[test]
    fn unparsable_expression_hints_at_the_right_syntax() {
        for (text, reason) in [
            ("see †state.a", "`see` is neither a reference"),
            ("†state.a is it", "a reference is the whole text"),
            ("†state.a |> †state.b", "there are no pipes"),
            ("†state.a ?? 1", "write `||`"),
            ("†state.a †state.b", "two references need"),
            ("†state.a == 1", "conditions go into `_when`"),
            ("†state.a ||", "found the end"),
            ("5 || 6", "there is no reference in it"),
        ] {
            let error = InputExpression::parse(text, false).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
        let computed = OutputExpression::parse("†state.a || 'b'", false).unwrap_err().to_string();
        assert!(computed.contains("expected a reference"), "{computed}");
    }
}
