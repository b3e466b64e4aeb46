//! Property tests: every stream is well-formed, whatever happens, and no request makes the reader panic.

use longhaul_domain::{
    ToolCall,
    message::{NativeBlocks, NativeFormat},
};
use proptest::{collection::vec, option, prelude::*, sample::select};
use serde_json::{Value, json};

use super::{Header, Stream, checker, request};
use crate::{End, Frame, Moment, Reply, ReplyCall, Runner, Tokens, Wanted, WantedKind};

fn any_text() -> impl Strategy<Value = String> {
    select(vec!["", "a", "ab", "é\n", "{\"a\": 1}", "\u{1f600}", "long text"]).prop_map(str::to_owned)
}

fn any_call() -> impl Strategy<Value = ToolCall> {
    (0..1_000_000_u32, any_text()).prop_map(|(id, arguments)| ToolCall {
        id: format!("call_{id}"),
        name: "f".into(),
        arguments,
    })
}

fn any_reply() -> impl Strategy<Value = Reply> {
    let call = (any_call(), select(vec![Runner::Caller, Runner::Worker]));
    let call = call.prop_map(|(call, by)| ReplyCall { call, by });
    let native = option::of(any_text()).prop_map(|text| {
        text.map(|text| NativeBlocks {
            format: NativeFormat::Anthropic,
            provider: None,
            blocks: vec![json!({ "type": "thinking", "thinking": text }).to_string()],
        })
    });
    (1..4_u32, vec(any_text(), 0..3), vec(call, 0..3), native, any::<bool>()).prop_map(
        |(turn, text, calls, native, is_cut)| Reply {
            turn,
            text: text.concat(),
            calls,
            native,
            model: None,
            tokens: Tokens { input: 2, output: 1, ..Tokens::default() },
            is_cut,
        },
    )
}

fn any_end() -> impl Strategy<Value = Moment> {
    let failed = End::Failed { class: "c".into(), code: "panic".into(), summary: "s".into(), detail: None };
    let kind = select(vec![WantedKind::Result, WantedKind::Answer, WantedKind::Approval]);
    let wanted = (kind, any::<u128>(), any_call());
    let wanted = wanted.prop_map(|(kind, id, call)| Wanted { kind, request_id: format!("{id:032x}"), call });
    prop_oneof![
        any_text().prop_map(|output| Moment::Over(End::Finished { output })),
        Just(Moment::Over(End::Cut)),
        Just(Moment::Over(End::Cancelled)),
        Just(Moment::Over(failed)),
        vec(wanted, 0..3).prop_map(Moment::Waits),
    ]
}

/// Moments in any order, also such as no run tells, with an end.
fn any_moments() -> impl Strategy<Value = Vec<Moment>> {
    let moment = prop_oneof![
        1 => Just(Moment::Started),
        6 => (1..4_u32, 0..6_usize, any_text()).prop_map(|(turn, offset, text)| Moment::Text { turn, offset, text }),
        2 => (1..4_u32).prop_map(|turn| Moment::Void { turn }),
        3 => any_reply().prop_map(Moment::Reply),
    ];
    (vec(moment, 0..12), any_end()).prop_map(|(mut moments, end)| {
        moments.push(end);
        moments
    })
}

/// Moments as a run tells them: turns whose portions are those of the reply, and some that are void.
fn any_run() -> impl Strategy<Value = Vec<Moment>> {
    let turn = (vec(any_text(), 0..4), any_reply(), any::<bool>(), any::<bool>());
    (vec(turn, 0..4), any_text(), any_end()).prop_map(|(turns, output, end)| {
        let mut moments = vec![Moment::Started];
        for (turn, (portions, mut reply, is_void, has_portions)) in (1..).zip(turns) {
            let mut told = String::new();
            for text in portions.iter().filter(|_| has_portions) {
                moments.push(Moment::Text { turn, offset: told.len(), text: text.clone() });
                told.push_str(text);
            }
            if is_void {
                moments.push(Moment::Void { turn });
            } else {
                told = portions.concat();
            }
            reply.turn = turn;
            reply.text = if is_void { reply.text } else { format!("{told}{}", reply.text) };
            moments.push(Moment::Reply(reply));
        }
        moments.push(end);
        moments.push(Moment::Over(End::Finished { output }));
        moments
    })
}

fn any_header() -> impl Strategy<Value = Header> {
    let echo = select(vec![
        json!({}),
        json!({ "reasoning": { "effort": null, "summary": "auto" } }),
        json!({ "text": { "format": { "type": "json_object" } } }),
    ]);
    (any::<bool>(), any::<bool>(), echo).prop_map(|(one_call, is_background, echo)| Header {
        id: "resp_019a2c3e5b7f7d10a1b2c3d4e5f60718".into(),
        created_at: 5,
        model: "m".into(),
        echo,
        previous_response_id: None,
        one_call,
        is_background,
    })
}

/// The frames of moments, moment by moment, after those of the beginning.
fn told(header: &Header, moments: &[Moment]) -> Vec<Vec<Frame>> {
    let mut stream = Stream::new(header.clone());
    let mut all = vec![stream.begin()];
    for (at, moment) in (10..).zip(moments) {
        all.push(stream.push(moment, at));
        checker::check_response(&stream.object());
    }
    all
}

/// Values that may stand anywhere in a request.
fn odd_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        select(vec![
            json!(null),
            json!(true),
            json!(-1),
            json!(1e300),
            json!(""),
            json!("auto"),
            json!("data:,"),
            json!("\0")
        ]),
        select(vec!["message", "function", "input_image", "function_call", "compaction", "json_schema", "user"])
            .prop_map(|text| json!(text)),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let names =
            vec!["type", "role", "content", "text", "format", "name", "image_url", "file_id", "output", "call_id"];
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::Array),
            vec((select(names), inner), 0..5)
                .prop_map(|members| members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
        ]
    })
}

const MEMBERS: [&str; 24] = [
    "model",
    "input",
    "instructions",
    "tools",
    "tool_choice",
    "text",
    "reasoning",
    "metadata",
    "conversation",
    "include",
    "previous_response_id",
    "store",
    "background",
    "stream",
    "temperature",
    "top_p",
    "max_output_tokens",
    "truncation",
    "service_tier",
    "user",
    "n",
    "prompt",
    "parallel_tool_calls",
    "safety_identifier",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn streams_of_any_moments_are_well_formed(header in any_header(), moments in any_moments()) {
        checker::check_stream(&told(&header, &moments).concat(), header.is_background);
    }

    #[test]
    fn streams_of_runs_are_well_formed(header in any_header(), moments in any_run()) {
        let frames = told(&header, &moments);
        checker::check_stream(&frames.concat(), header.is_background);
        prop_assert!(frames.last().unwrap().is_empty(), "nothing follows the end");
    }

    #[test]
    fn resumed_streams_have_the_same_bytes(header in any_header(), moments in any_moments(), cut in 0..12_usize) {
        let cut = cut.min(moments.len());
        let (part, whole) = (told(&header, &moments[..cut]).concat(), told(&header, &moments).concat());
        prop_assert_eq!(&part[..], &whole[..part.len()]);
    }

    #[test]
    fn odd_requests_are_faults_and_no_panics(
        members in vec((select(MEMBERS.to_vec()), odd_value()), 0..6),
        has_base in any::<bool>(),
    ) {
        let mut body = if has_base { json!({ "model": "m", "input": "hi" }) } else { json!({}) };
        for (name, value) in members {
            body[name] = value;
        }
        let bytes = body.to_string();
        for read in [request::read, request::read_frame, request::read_compact, request::read_count] {
            if let Ok(create) = read(bytes.as_bytes()) {
                let header = Header {
                    id: "resp_1".into(),
                    created_at: 0,
                    model: create.asked.model_text,
                    echo: create.echo,
                    previous_response_id: create.previous_response_id,
                    one_call: true,
                    is_background: create.background,
                };
                checker::check_response(&Stream::new(header).object());
                for item in &create.input {
                    prop_assert!(item["id"].is_string() && item["type"].is_string());
                }
            }
        }
    }

    #[test]
    fn bytes_of_any_kind_are_no_panic(bytes in vec(any::<u8>(), 0..64)) {
        prop_assert!(request::read(&bytes).is_err());
    }
}
