//! Tests with hostile schemas and with ordinary ones.

use std::time::{Duration, Instant};

use serde_json::json;

use super::*;

fn compile(schema: &Value) -> Result<Schema, String> {
    Schema::compile(schema, Patterns::Linear)
}

fn count(errors: &mut dyn Iterator<Item = ValidationError<'_>>) -> usize {
    errors.count()
}

/// Runs both kinds of check, each within two seconds.
async fn check(schema: &Value, value: &Value) -> Result<Option<Listing<usize>>, Unchecked> {
    let schema = compile(schema).unwrap();
    let began = Instant::now();
    let found = schema.check(value, count).await;
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    let briefly = schema.check_briefly(value, count);
    if !matches!(briefly, Err(Unchecked::TooMuchWork)) {
        assert_eq!(briefly, found);
    }
    found
}

fn doubling(levels: usize, keyword: &str) -> Value {
    let mut definitions = serde_json::Map::new();
    for level in 0..levels {
        let next = json!({"$ref": format!("#/$defs/a{}", level + 1)});
        definitions.insert(format!("a{level}"), json!({ keyword: [next, next] }));
    }
    definitions.insert(format!("a{levels}"), json!({}));
    json!({"$defs": definitions, "$ref": "#/$defs/a0"})
}

#[test]
fn doubling_references_are_refused_at_compile() {
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let refused = compile(&doubling(60, keyword)).unwrap_err();
        assert!(refused.contains("references repeat"), "{refused}");
        compile(&doubling(8, keyword)).unwrap();
    }
    // The same schemas below unknown keywords, and with an escaped reference.
    let mut hidden = doubling(60, "allOf");
    let definitions = hidden["$defs"].take();
    let moved = definitions.to_string().replace("#/$defs/", "#/components/%73chemas/");
    let hidden = json!({"components": {"schemas": serde_json::from_str::<Value>(&moved).unwrap()},
        "$ref": "#/components/schemas/a0"});
    assert!(compile(&hidden).unwrap_err().contains("references repeat"));
}

#[test]
fn numbers_that_would_be_written_out_are_refused() {
    for schema in [r#"{"multipleOf": 1e-999999999}"#, r#"{"maximum": 1e999999999}"#] {
        let refused = compile(&serde_json::from_str(schema).unwrap()).unwrap_err();
        assert!(refused.contains("128 digits"), "{refused}");
    }
    let schema = compile(&json!({"multipleOf": 0.01, "maximum": 1e300})).unwrap();
    let value: Value = serde_json::from_str("1e999999999").unwrap();
    assert_eq!(schema.check_briefly(&value, count), Err(Unchecked::TooMuchWork));
}

#[test]
fn references_that_cannot_be_followed_are_refused() {
    let bomb = doubling(60, "allOf");
    for (schema, says) in [
        (json!({"$ref": "http://169.254.169.254/latest"}), "must lead to a place in the schema"),
        (json!({"$ref": "file:///etc/passwd"}), "must lead to a place in the schema"),
        (json!({"$ref": "#anchor", "$defs": {"a": {"$anchor": "anchor"}}}), "must lead to a place in the schema"),
        (json!({"$ref": "#/const/a0", "const": bomb["$defs"].clone()}), "leads to no schema"),
        (json!({"$ref": "#/$defs/x"}), "leads to no schema"),
        (json!({"$dynamicRef": "#a", "$defs": {"a": {"$dynamicAnchor": "a"}}}), "not supported"),
        (json!({"properties": {"a": {"$id": "http://x/y", "$ref": "#/$defs/a"}}}), "not supported"),
        (json!({"$ref": "#"}), "back to itself"),
        (
            json!({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}}}),
            "back to itself",
        ),
        (json!({"type": "string", "pattern": "^(?=a)b"}), "regex"),
        (json!({"type": "no such type"}), "no such type"),
    ] {
        let refused = compile(&schema).unwrap_err();
        assert!(refused.contains(says), "{schema}: {refused}");
    }
}

#[test]
fn schemas_beyond_a_limit_are_refused() {
    let many = |count: usize| {
        (0..count).map(|n| (format!("p{n}"), json!({"type": "string"}))).collect::<serde_json::Map<_, _>>()
    };
    let deep = (0..MAX_SCHEMA_DEPTH).fold(json!({}), |schema, _| json!({"items": schema}));
    let deeper = json!({"items": deep});
    let patterns = |count: usize| (0..count).map(|n| (format!("^p{n}"), json!({}))).collect::<serde_json::Map<_, _>>();
    compile(&json!({"properties": many(MAX_SUBSCHEMAS - 1)})).unwrap();
    compile(&deep).unwrap();
    for (schema, says) in [
        (json!({"properties": many(MAX_SUBSCHEMAS)}), "subschemas"),
        (deeper, "nested deeper"),
        (json!({"description": "x".repeat(MAX_SCHEMA_BYTES)}), "bytes long"),
        (json!({"patternProperties": patterns(200)}), "regular expressions"),
        (json!({"pattern": "a".repeat(5_000)}), "regular expression is longer"),
    ] {
        let refused = compile(&schema).unwrap_err();
        assert!(refused.contains(says), "{says}: {refused}");
    }
}

#[tokio::test]
async fn values_of_excessive_work_are_refused_in_time() {
    // Each level of the value doubles the number of checks of the next.
    let tree = json!({"$defs": {"n": {"allOf": [
        {"properties": {"a": {"$ref": "#/$defs/n"}}}, {"properties": {"a": {"$ref": "#/$defs/n"}}}]}},
        "$ref": "#/$defs/n"});
    let deep = (0..60).fold(json!(1), |value, _| json!({"a": value}));
    assert!(matches!(check(&tree, &deep).await, Err(Unchecked::TooMuchWork) | Ok(None)));
    let mut strict = tree.clone();
    strict["$defs"]["n"]["type"] = json!("object");
    assert!(matches!(check(&strict, &deep).await, Err(Unchecked::TooMuchWork) | Ok(Some(Listing::TooLong))));
    assert_eq!(check(&tree, &json!({"a": {"a": 1}})).await, Ok(None));

    let options: Vec<_> = (0..30_000).collect();
    let items = vec![29_999; 200_000];
    assert_eq!(check(&json!({"items": {"enum": options}}), &json!(items)).await, Err(Unchecked::TooMuchWork));

    let patterns: serde_json::Map<_, _> = (0..60).map(|n| (format!("(a|b)*{n}(a|b){{40}}$"), json!({}))).collect();
    let names: serde_json::Map<_, _> = (0..2_000).map(|n| (format!("ab{n}").repeat(20), json!(1))).collect();
    assert_eq!(check(&json!({"patternProperties": patterns}), &json!(names)).await, Err(Unchecked::TooMuchWork));

    let slow = json!({"pattern": "(a|b)*a(a|b){100}$"});
    assert_eq!(check(&slow, &json!("ab".repeat(2_000_000))).await, Err(Unchecked::TooMuchWork));
}

#[tokio::test]
async fn longest_reference_chain_overflows_no_stack() {
    // Long chains in place and along the value: compiling, checking and dropping all recurse.
    let mut definitions = serde_json::Map::new();
    for level in 0..60 {
        let next = (level + 1) % 60;
        let link = if next == 0 {
            json!({"properties": {"a": {"$ref": "#/$defs/a0"}}})
        } else {
            json!({"$ref": format!("#/$defs/a{next}")})
        };
        definitions.insert(format!("a{level}"), json!({"allOf": [link]}));
    }
    let schema = json!({"$defs": definitions, "$ref": "#/$defs/a0"});
    let deep = (0..60).fold(json!({"a": 1}), |value, _| json!({"a": value}));
    assert_eq!(check(&schema, &deep).await, Ok(None));

    let mut definitions = serde_json::Map::new();
    for level in 0..MAX_SUBSCHEMAS / 4 {
        definitions
            .insert(format!("a{level}"), json!({"properties": {"a": {"$ref": format!("#/$defs/a{}", level + 1)}}}));
    }
    definitions.insert(format!("a{}", MAX_SUBSCHEMAS / 4), json!({"type": "string"}));
    assert_eq!(check(&json!({"$defs": definitions, "$ref": "#/$defs/a0"}), &deep).await, Ok(None));
}

#[tokio::test]
async fn unevaluated_keywords_are_metered() {
    let mut schema = doubling(10, "allOf");
    schema["unevaluatedProperties"] = json!(false);
    for level in 0..10 {
        schema["$defs"][format!("a{level}")]["unevaluatedProperties"] = json!({"type": "integer"});
    }
    let wide: serde_json::Map<_, _> = (0..20_000).map(|n| (format!("p{n}"), json!(n))).collect();
    let outcome = check(&schema, &json!(wide)).await;
    assert!(matches!(outcome, Err(Unchecked::TooMuchWork) | Ok(_)), "{outcome:?}");
}

#[tokio::test]
async fn large_ordinary_values_are_checked() {
    let schema = json!({"type": "object", "required": ["rows", "text"], "properties": {
        "id": {"type": "string", "pattern": "^[a-z0-9_-]{1,64}$"},
        "text": {"type": "string", "pattern": "\\S"},
        "rows": {"type": "array", "uniqueItems": true,
            "items": {"type": "object", "required": ["n"], "additionalProperties": false,
            "properties": {"n": {"type": "integer", "minimum": 0}, "kind": {"enum": ["a", "b"]}}}}}});
    let rows: Vec<_> = (0..50_000).map(|n| json!({"n": n, "kind": "a"})).collect();
    let value = json!({"id": "abc", "text": "word ".repeat(400_000), "rows": rows});
    assert_eq!(check(&schema, &value).await, Ok(None));
    let bad: Vec<_> = (0..50_000).map(|n| json!({"n": n, "kind": "c"})).collect();
    assert_eq!(check(&schema, &json!({"text": "x", "rows": bad})).await, Ok(Some(Listing::TooLong)));
    assert_eq!(check(&schema, &json!({"rows": []})).await, Ok(Some(Listing::Whole(1))));
}

#[tokio::test]
async fn members_named_like_keywords_are_values() {
    let schema = json!({"type": "object", "additionalProperties": false,
        "properties": {"properties": {"type": "object"}, "const": {"$ref": "#/properties/default"},
            "default": {"type": "integer"},
            "$ref": {"type": "string"}, "$id": {"type": "string"}, "enum": {"enum": [{"a": 1}]}}});
    let value = json!({"properties": {"x": 1}, "const": 1, "default": 2, "$ref": "x", "$id": "y", "enum": {"a": 1}});
    assert_eq!(check(&schema, &value).await, Ok(None));
    assert_eq!(check(&schema, &json!({"const": "x"})).await, Ok(Some(Listing::Whole(1))));
}

#[test]
fn the_cache_is_bounded_and_compiles_once() {
    let cache = SchemaCache::default();
    let get = |number: usize| cache.get(&json!({ "const": number })).unwrap();
    let first = get(0);
    assert!(Arc::ptr_eq(&first.0, &get(0).0));
    for number in 1..=MAX_CACHED {
        get(number);
    }
    assert_eq!(cache.lock().by_hash.len(), MAX_CACHED);
    assert!(!Arc::ptr_eq(&first.0, &get(0).0));
    assert!(cache.get(&json!({"type": 1})).is_err());
}
