//! Access to the values of templates.

use minijinja::Value;

/// A member of a template value; undefined if there is none.
pub(crate) fn member(value: &Value, name: &str) -> Value {
    value.get_attr(name).unwrap_or_default()
}

/// The items of a list; none if it is no list.
pub(crate) fn items(list: &Value) -> Vec<Value> {
    list.try_iter().map(Iterator::collect).unwrap_or_default()
}
