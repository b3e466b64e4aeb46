//! YAML as a JSON value, with the line of each member and item, so that an error found in the value can name the line
//! of the file.

use std::{collections::BTreeMap, fmt};

use longhaul_sdk::json_pointer::token;
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};
use serde_saphyr::{Location, Spanned};

/// A document.
#[derive(Debug)]
pub(crate) struct Located {
    pub(crate) value: Value,
    pub(crate) lines: Lines,
}

/// The lines of a document, by JSON pointer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lines {
    /// Line of a value; of a member of an object, the line of its key.
    places: BTreeMap<String, Place>,
    text: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    line: usize,
    /// Line where the value begins, and its column.
    value: (usize, usize),
}

impl Located {
    /// Reads a document.
    ///
    /// # Errors
    /// It is no YAML, or has a key that is no text: the reason, and its line where it is known.
    pub(crate) fn read(text: &str) -> Result<Self, (Option<usize>, String)> {
        // YAML 1.2: only `true` and `false` are booleans; `n`, `y`, `no` and `on` are strings.
        let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
        let node: Spanned<Node> = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| (error.location().map(|at| line(&at)), reason(&error.to_string())))?;
        let mut lines = Lines { places: BTreeMap::new(), text: text.lines().map(str::to_owned).collect() };
        let place = Place { line: line(&node.defined), value: start(&node.defined) };
        lines.places.insert(String::new(), place);
        let value = node.value.into_value("", &mut lines.places);
        Ok(Self { value, lines })
    }
}

/// The reader's reason, without its place, which is told by its line, and without the names of its functions.
fn reason(said: &str) -> String {
    if said.contains("multiple YAML documents") {
        return "the file has more than one document; write each into a file of its own".into();
    }
    let place = said.rfind(" at line ").filter(|at| said[*at..].contains(", column "));
    said[..place.unwrap_or(said.len())].to_owned()
}

impl Lines {
    /// The line of the value at `pointer`, or of the nearest around it.
    pub(crate) fn of(&self, pointer: &str) -> Option<usize> {
        Some(self.place(pointer)?.line)
    }

    /// The line of a part of the text at `pointer`: its line `inner`, from 1. In a folded or quoted scalar the nearest
    /// line that contains `mark`.
    pub(crate) fn within(&self, pointer: &str, inner: usize, mark: &str) -> Option<usize> {
        let (line, column) = self.place(pointer)?.value;
        let first = self.text.get(line.checked_sub(1)?)?;
        let is_block = matches!(first.chars().nth(column.saturating_sub(1)), Some('|' | '>'));
        let at = if is_block { line + inner } else { line + inner - 1 };
        let has_mark = |at: usize| self.text.get(at - 1).is_some_and(|text| text.contains(mark));
        // The text of a quoted scalar has other lines than the file.
        (line..=line + self.text.len()).filter(|at| has_mark(*at)).min_by_key(|found| found.abs_diff(at)).or(Some(at))
    }

    fn place(&self, pointer: &str) -> Option<Place> {
        let mut pointer = pointer;
        loop {
            if let Some(place) = self.places.get(pointer) {
                return Some(*place);
            }
            pointer = &pointer[..pointer.rfind('/')?];
        }
    }
}

fn line(at: &Location) -> usize {
    usize::try_from(at.line()).unwrap_or_default()
}

fn start(at: &Location) -> (usize, usize) {
    (line(at), usize::try_from(at.column()).unwrap_or_default())
}

/// A value with the places of what is in it.
#[derive(Debug)]
enum Node {
    Scalar(Value),
    List(Vec<Spanned<Node>>),
    Map(Vec<(Spanned<String>, Spanned<Node>)>),
}

impl Node {
    fn into_value(self, pointer: &str, places: &mut BTreeMap<String, Place>) -> Value {
        match self {
            Self::Scalar(value) => value,
            Self::List(items) => {
                let mut values = Vec::new();
                for (index, item) in items.into_iter().enumerate() {
                    let at = format!("{pointer}/{index}");
                    places.insert(at.clone(), Place { line: line(&item.defined), value: start(&item.defined) });
                    values.push(item.value.into_value(&at, places));
                }
                Value::Array(values)
            }
            Self::Map(members) => {
                let mut values = Map::new();
                for (key, member) in members {
                    let at = format!("{pointer}/{}", token(&key.value));
                    places.insert(at.clone(), Place { line: line(&key.defined), value: start(&member.defined) });
                    values.insert(key.value, member.value.into_value(&at, places));
                }
                Value::Object(values)
            }
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Node, E> {
        serde_json::Number::from_f64(value)
            .map(|number| Node::Scalar(number.into()))
            .ok_or_else(|| E::custom("a number must be finite"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_unit<E: Error>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_none<E: Error>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Node, A::Error> {
        let mut map = Vec::new();
        while let Some(member) = members.next_entry()? {
            map.push(member);
        }
        Ok(Node::Map(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_have_the_lines_of_their_keys() {
        let text = "key: a\nmodel:\n  extra: {seed: 7}\ntools:\n  - one\n  - name: two\n\
                    prompt: |\n  Hello\n  {{ input.x }}\n\
                    other: >\n  a\n  b {{ y }}\nquoted: \"a\\nb\\nc {{ z }}\"\nwords: [no, on, 1.5, null]\n";
        let Located { value, lines } = Located::read(text).unwrap();
        assert_eq!(value["words"], json!(["no", "on", 1.5, null]));
        assert_eq!(value["prompt"], "Hello\n{{ input.x }}\n");
        let line = |pointer| lines.of(pointer).unwrap();
        assert_eq!([line("/key"), line("/model/extra/seed"), line("/tools/1"), line("/tools/1/name")], [1, 3, 6, 6]);
        assert_eq!(line("/model/extra/gone/deeper"), 3, "the nearest around it");
        assert_eq!(lines.within("/prompt", 2, "input.x"), Some(9));
        assert_eq!(lines.within("/other", 1, "y"), Some(12));
        assert_eq!(lines.within("/quoted", 3, "z"), Some(13));
        let (line, reason) = Located::read("a: 1\nb: [\n").unwrap_err();
        assert!(line.is_some(), "{reason}");
        let (line, reason) = Located::read("a: 1\na: 2\n").unwrap_err();
        assert_eq!(line, Some(2), "{reason}");
    }
}
