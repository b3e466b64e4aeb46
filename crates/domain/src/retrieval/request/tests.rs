use serde_json::json;

use super::*;

fn read(retrieval: Value) -> Result<RetrievalRequest, InvalidRetrieval> {
    RetrievalRequest::read(Some(&retrieval), || Some("derived".into())).map(Option::unwrap)
}

#[test]
fn filter_values_keep_long_integers_as_stored() {
    for text in ["12345678901234567890123", "1700000000123", "0.5", "true", "\"x\""] {
        let value: FilterValue = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&value).unwrap(), text);
    }
    assert!(serde_json::from_str::<FilterValue>(&"9".repeat(129)).is_err());
}

#[test]
fn absent_and_null_are_no_search() {
    assert_eq!(RetrievalRequest::read(None, || None), Ok(None));
    assert_eq!(RetrievalRequest::read(Some(&Value::Null), || None), Ok(None));
}

#[test]
fn omitted_request_fields_get_defaults() {
    let expected = RetrievalRequest {
        index: "kb".into(),
        query: "derived".into(),
        top_k: 5,
        search_method: SearchMethod::Semantic,
        query_preprocessing: Preprocessing::None,
        hybrid_alpha: None,
        filters: Filters::new(),
    };
    assert_eq!(read(json!({"index": " kb "})), Ok(expected.clone()));
    let nothing = json!({
        "index": "kb", "query": null, "top_k": null, "filters": null, "search_method": "", "query_preprocessing": false,
        "hybrid_alpha": {"ignored": "beside another method"},
    });
    assert_eq!(read(nothing), Ok(expected));
}

#[test]
fn the_request_of_the_contract_is_read() {
    let request = read(json!({
        "index": "knowledge_base", "query": " optional explicit retrieval query ", "search_method": " HYBRID ",
        "query_preprocessing": "Normalize", "top_k": 5, "hybrid_alpha": 0.5,
        "filters": {" tenant ": "ops", "n": 3, "x": 1.5, "b": true},
    }));
    let filters = Filters::from([
        ("tenant".into(), FilterValue::Text("ops".into())),
        ("n".into(), FilterValue::Int(3)),
        ("x".into(), FilterValue::Number(1.5)),
        ("b".into(), FilterValue::Bool(true)),
    ]);
    let expected = RetrievalRequest {
        index: "knowledge_base".into(),
        query: "optional explicit retrieval query".into(),
        top_k: 5,
        search_method: SearchMethod::Hybrid,
        query_preprocessing: Preprocessing::Normalize,
        hybrid_alpha: Some(0.5),
        filters,
    };
    assert_eq!(request, Ok(expected));
}

#[test]
fn top_k_parses_to_an_integer_within_bounds() {
    let top_k = |value: Value| read(json!({"index": "kb", "top_k": value})).map(|request| request.top_k);
    for (given, expected) in [(json!(1), 1), (json!("7"), 7), (json!(" 7 "), 7), (json!(2.9), 2), (json!(100), 100)] {
        assert_eq!(top_k(given), Ok(expected));
    }
    let refused = [
        json!(0),
        json!(-1),
        json!(0.9),
        json!(101),
        json!(100_000),
        json!(true),
        json!(false),
        json!("2.9"),
        json!("NaN"),
        json!("seven"),
        json!(""),
        json!([]),
        json!({}),
        json!(1e300),
        json!(u64::MAX),
        json!("1e400"),
        json!("99999999999999"),
    ];
    for given in refused {
        assert_eq!(top_k(given.clone()), Err(InvalidRetrieval::TopK), "{given}");
    }
}

#[test]
fn alpha_is_a_number_from_zero_to_one() {
    let alpha = |value: Value| {
        read(json!({"index": "kb", "search_method": "hybrid", "hybrid_alpha": value}))
            .map(|request| request.hybrid_alpha)
    };
    let accepted = [
        (Value::Null, 0.5),
        (json!(""), 0.5),
        (json!(0), 0.0),
        (json!(1), 1.0),
        (json!(0.3), 0.3),
        (json!("0.25"), 0.25),
        (json!(" 1 "), 1.0),
        (json!(true), 1.0),
        (json!(false), 0.0),
    ];
    for (given, expected) in accepted {
        assert_eq!(alpha(given), Ok(Some(expected)));
    }
    let refused = [
        json!("nan"),
        json!("NaN"),
        json!("inf"),
        json!("-inf"),
        json!("infinity"),
        json!("1e400"),
        json!(-0.1),
        json!(1.1),
        json!(1e300),
        json!("half"),
        json!(" "),
        json!([]),
        json!({}),
    ];
    for given in refused {
        assert_eq!(alpha(given.clone()), Err(InvalidRetrieval::HybridAlpha), "{given}");
    }
}

#[test]
fn poison_is_refused_with_one_code() {
    let refused = [
        (json!({}), InvalidRetrieval::Index),
        (json!({"index": null}), InvalidRetrieval::Index),
        (json!({"index": "  "}), InvalidRetrieval::Index),
        (json!({"index": 5}), InvalidRetrieval::Index),
        (json!({"index": "a\u{0}b"}), InvalidRetrieval::Index),
        (json!({"index": "x".repeat(129)}), InvalidRetrieval::Index),
        (json!({"index": "kb", "query": ""}), InvalidRetrieval::Query),
        (json!({"index": "kb", "query": " \n"}), InvalidRetrieval::Query),
        (json!({"index": "kb", "query": ["a"]}), InvalidRetrieval::Query),
        (json!({"index": "kb", "query": "a\u{0}"}), InvalidRetrieval::Query),
        (json!({"index": "kb", "query": "x".repeat(32_769)}), InvalidRetrieval::QueryTooLong { bytes: 32_769 }),
        (json!({"index": "kb", "search_method": "fuzzy"}), InvalidRetrieval::SearchMethod),
        (json!({"index": "kb", "search_method": 1}), InvalidRetrieval::SearchMethod),
        (json!({"index": "kb", "query_preprocessing": "stem"}), InvalidRetrieval::Preprocessing),
        (json!({"index": "kb", "filters": []}), InvalidRetrieval::Filters),
        (json!({"index": "kb", "filters": {"a": null}}), InvalidRetrieval::Filters),
        (json!({"index": "kb", "filters": {"a": [1]}}), InvalidRetrieval::Filters),
        (json!({"index": "kb", "filters": {"a": {}}}), InvalidRetrieval::Filters),
        (json!({"index": "kb", "filters": {" ": 1}}), InvalidRetrieval::Filters),
        (json!({"index": "kb", "filters": {"a": "x".repeat(1_025)}}), InvalidRetrieval::Filters),
        (json!("kb"), InvalidRetrieval::NotAnObject),
        (json!(["kb"]), InvalidRetrieval::NotAnObject),
    ];
    for (given, expected) in refused {
        let error = read(given).unwrap_err();
        assert_eq!(error, expected);
        assert_eq!(error.code(), "invalid_retrieval_input");
    }
    let many: Map<String, Value> = (0..33).map(|n| (format!("k{n}"), json!(n))).collect();
    assert_eq!(read(json!({"index": "kb", "filters": many})), Err(InvalidRetrieval::Filters));
}

#[test]
fn query_derives_from_prompt_or_last_user_message() {
    let of =
        |input: Value| RetrievalRequest::of_input(input.as_object().unwrap()).map(|request| request.unwrap().query);
    let messages = json!([
        {"role": "user", "content": "first"},
        {"role": "User",
            "content": [{"type": "text", "text": " a "}, {"type": "image"}, {"type": "text", "text": "b"}]},
        {"role": "user", "content": ""},
        {"role": "assistant", "content": "c"},
    ]);
    assert_eq!(of(json!({"retrieval": {"index": "kb"}, "prompt": " p ", "messages": messages})), Ok("p".into()));
    assert_eq!(of(json!({"retrieval": {"index": "kb"}, "prompt": null, "messages": messages})), Ok("a\nb".into()));
    assert_eq!(of(json!({"retrieval": {"index": "kb", "query": "q"}, "prompt": "p"})), Ok("q".into()));
    assert_eq!(of(json!({"retrieval": {"index": "kb"}})), Err(InvalidRetrieval::Query));
}
