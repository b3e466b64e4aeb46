//! Hostile inputs: schemas, templates and batch items designed to stop a process or to take all of its time.

use serde_json::{Map, Value, json};

/// Bytes of the longest text in one submit.
const LONG: usize = 900_000;
/// Maximum bytes of a batch's body.
pub(super) const BATCH_BYTES: usize = 16 << 20;
/// Maximum bytes of a batch item.
pub(super) const ITEM_BYTES: usize = 1 << 20;

/// A schema whose references double at each of `levels` levels.
pub(super) fn doubling(levels: usize, keyword: &str) -> Value {
    let mut definitions = Map::new();
    for level in 0..levels {
        let next = json!({ "$ref": format!("#/$defs/a{}", level + 1) });
        definitions.insert(format!("a{level}"), json!({ keyword: [next, next] }));
    }
    definitions.insert(format!("a{levels}"), json!({}));
    json!({ "$defs": definitions, "$ref": "#/$defs/a0" })
}

/// Schemas that the API must refuse.
pub(super) fn unbounded_schemas() -> Vec<Value> {
    let patterns: Map<_, _> = (0..200).map(|n| (format!("^(a|b)*p{n}"), json!({}))).collect();
    let names: Map<_, _> = (0..6_000).map(|n| (format!("p{n}"), json!({ "type": "string" }))).collect();
    vec![
        doubling(60, "allOf"),
        doubling(60, "anyOf"),
        doubling(60, "oneOf"),
        (0..100).fold(json!({}), |schema, _| json!({ "items": schema })),
        json!({ "patternProperties": patterns }),
        json!({ "properties": names }),
        json!({ "$defs": { "a": { "not": { "$ref": "#/$defs/a" } } }, "$ref": "#/$defs/a" }),
        json!({ "$ref": "http://127.0.0.1:9/schema" }),
        json!({ "pattern": "a".repeat(5_000) }),
        json!({ "pattern": "^(a+)+(?=b)$" }),
    ]
}

/// Accepted schemas, each with its costliest input.
pub(super) fn costly_schemas() -> Vec<(Value, Value)> {
    let tree = json!({ "$defs": { "n": { "type": "object", "allOf": [
        { "properties": { "a": { "$ref": "#/$defs/n" } } }, { "properties": { "a": { "$ref": "#/$defs/n" } } }
    ] } }, "$ref": "#/$defs/n" });
    let deep = (0..60).fold(json!(1), |value, _| json!({ "a": value }));
    let mut unevaluated = doubling(10, "allOf");
    unevaluated["unevaluatedProperties"] = json!({ "type": "integer" });
    let wide: Map<_, _> = (0..40_000).map(|n| (format!("p{n}"), json!("x"))).collect();
    let options: Vec<_> = (0..20_000).collect();
    let patterns: Map<_, _> = (0..60).map(|n| (format!("(a|b)*{n}(a|b){{40}}$"), json!({}))).collect();
    let names: Map<_, _> = (0..2_000).map(|n| (format!("ab{n}").repeat(20), json!(1))).collect();
    let rows = json!({ "uniqueItems": true, "items": { "type": "object", "required": ["n"],
        "properties": { "n": { "type": "integer" }, "kind": { "enum": ["a", "b"] } } } });
    let mut listed: Vec<_> = (0..40_000).map(|n| json!({ "n": n, "kind": "a" })).collect();
    listed.push(json!({ "n": -1, "kind": "c" }));
    vec![
        (tree, deep),
        (unevaluated, json!(wide)),
        (json!({ "items": { "enum": options } }), json!(vec![19_999; LONG / 6])),
        (json!({ "patternProperties": patterns }), json!(names)),
        (slow_pattern(), json!("ab".repeat(LONG / 2))),
        (rows, json!(listed)),
    ]
}

/// A pattern that is costly on a long text.
pub(super) fn slow_pattern() -> Value {
    json!({ "type": "string", "pattern": "(a|b)*a(a|b){100}$" })
}

/// A program of the scripted model that asks, calls and answers with costly schemas and values.
pub(super) fn schema_script(schema: &Value) -> String {
    let question = json!({ "question": "?", "answer_schema": schema }).to_string().replace('\'', "");
    format!(
        "{{% if turn == 1 %}}{{{{ calls([call('ask_caller', '{question}')]) }}}}\
         {{% elif turn == 2 %}}{{{{ calls([call('think', {{'text': 'ab' * 100000}})]) }}}}\
         {{% else %}}{{{{ text('ab' * 100000) }}}}{{% endif %}}"
    )
}

/// Templates over `input.prompt` that would use unbounded memory or time.
pub(super) const TEMPLATES: [&str; 16] = [
    r#"{{ "a\nb"|indent(4000000000000) }}"#,
    r#"{{ "%4000000000d"|format(1) }}"#,
    "{{ input|tojson(indent=4000000000) }}",
    "{% set ns = namespace(x='ab') %}{% for i in range(40) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x|length }}",
    "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x|tojson }}",
    "{% set ns = namespace(x=[1]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
    "{{ input.prompt|replace('a', 'b' * 100000) }}",
    "{{ ('a' * 9999) * 99999 }}",
    "{% for i in range(100) %}{{ ('a' * 4000000) | upper | length }}{% endfor %}",
    "{% for i in range(100000) %}{{ input.prompt }}{% endfor %}",
    "{{ range(100000)|join(input.prompt) }}",
    "{% for i in range(100000) %}{% if input.prompt == input.prompt ~ '' %}x{% endif %}{% endfor %}",
    "{% for i in range(100000) %}{% if 'zz' in input.prompt %}x{% endif %}{% endfor %}",
    "{% for i in range(100000) %}{% set x = input.prompt|split('') %}{% endfor %}",
    "{{ input.prompt|list|map('upper')|map('replace', 'A', input.prompt)|join }}",
    "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
];

/// The prompt of these templates.
pub(super) fn long_prompt() -> String {
    "a".repeat(20_000)
}

/// `size` items of a batch as JSON texts, of which one in ten can be stored.
pub(super) fn items(definition: &str, size: usize) -> Vec<String> {
    let nested = format!("{}1{}", "[".repeat(120), "]".repeat(120));
    let deeper = format!("{}1{}", "[".repeat(20_000), "]".repeat(20_000));
    let many: Map<_, _> = (0..100).map(|n| (format!("k{n}"), json!(n))).collect();
    let bad = [
        r#""input": {"text": "a\u0000b"}"#.to_owned(),
        r#""input": {"a\u0000b": 1}"#.to_owned(),
        r#""input": {}, "idempotency_key": "a\u0000b""#.to_owned(),
        format!(r#""input": {{}}, "idempotency_key": "{}""#, "k".repeat(256)),
        format!(r#""input": {{}}, "metadata": {}"#, json!(many)),
        format!(r#""input": {{}}, "metadata": {{"{}": 1}}"#, "k".repeat(20_000)),
        r#""input": {"lone": "\ud800"}"#.to_owned(),
        r#""input": {"large": 1e400}"#.to_owned(),
        format!(r#""input": {deeper}"#),
    ];
    let item = |n: usize| match n % 10 {
        // One key for equal requests, for a different one, and for one at the maximum nesting depth.
        0 if n.is_multiple_of(20) => format!(r#""input": {{"item": 0}}, "idempotency_key": "same-{}""#, n % 60),
        0 => format!(r#""input": {nested}, "idempotency_key": "same-{}""#, n % 60),
        kind => bad.get(kind - 1).cloned().unwrap_or_default(),
    };
    (0..size).map(|n| format!(r#"{{"definition": "{definition}", {}}}"#, item(n))).collect()
}

/// Items that together reach the maximum batch size. Each is parsed to its end before it is refused.
pub(super) fn large_items(definition: &str, size: usize) -> Vec<String> {
    let text = "x".repeat(BATCH_BYTES / size - 200);
    (0..size).map(|_| format!(r#"{{"definition": "{definition}", "input": {{"text": "{text}\u0000"}}}}"#)).collect()
}

/// A batch of these items.
pub(super) fn batch(items: &[String]) -> String {
    format!(r#"{{"executions": [{}]}}"#, items.join(","))
}

/// Names of tools that no worker has, `bytes` long when joined: about the maximum size of an index entry.
pub(super) fn tool_names(bytes: usize) -> Vec<String> {
    let name = |n: usize| format!("{n:0>60}");
    let mut names: Vec<_> = (0..bytes / 61).map(name).collect();
    names.push("z".repeat((bytes % 61).max(1)));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_bodies_have_the_size_they_claim() {
        let large = batch(&large_items("bench", 500));
        assert!((BATCH_BYTES - (1 << 20)..=BATCH_BYTES).contains(&large.len()), "{}", large.len());
        for (schema, input) in costly_schemas() {
            assert!(schema.to_string().len() < 256 << 10, "a definition takes no more");
            assert!(input.to_string().len() < ITEM_BYTES - 100, "a submit takes no more");
        }
        assert_eq!(tool_names(2_641).join("+").len(), 2_641);
    }

    #[test]
    fn items_are_texts_that_a_batch_can_hold() {
        let items = items("bench", 500);
        assert_eq!(items.len(), 500);
        assert!(items.iter().map(String::len).max() < Some(ITEM_BYTES));
    }
}
