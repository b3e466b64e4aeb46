use longhaul_domain::message::NativeBlocks;
use proptest::prelude::*;

use super::*;
use crate::ReplyCall;

pub(crate) fn header(one_call: bool) -> Header {
    let id = "0123456789abcdef0123456789abcdef".into();
    Header { id, created_at: 1_700_000_000, model: "agent:a".into(), one_call, include_usage: true }
}

pub(crate) fn call(id: &str, name: &str) -> ToolCall {
    ToolCall { id: id.into(), name: name.into(), arguments: r#"{"a":1e2}"#.into() }
}

pub(crate) fn text(turn: u32, text: &str) -> Moment {
    Moment::Text { turn, offset: 0, text: text.into() }
}

pub(crate) fn replied(turn: u32, text: &str, calls: Vec<ReplyCall>) -> Reply {
    let tokens = Tokens { input: 10, output: 4, cached: 3, cache_write: 2 };
    Reply { turn, text: text.into(), calls, native: None, model: None, tokens, is_cut: false }
}

pub(crate) fn finished(output: &str) -> Moment {
    Moment::Over(End::Finished { output: output.into() })
}

pub(crate) fn failed() -> Moment {
    let (class, code) = ("transient".into(), "model_timeout".into());
    Moment::Over(End::Failed { class, code, summary: "too slow".into(), detail: None })
}

pub(crate) fn wanted(kind: WantedKind) -> Wanted {
    Wanted { kind, request_id: "0192f0aa-1111-7222-8333-444455556666".into(), call: call("call_1", "f") }
}

/// Blocks of a reply with the text `so`.
pub(crate) fn thinking() -> NativeBlocks {
    let blocks = [
        json!({ "type": "thinking", "thinking": "hm", "signature": "s==" }),
        json!({ "type": "redacted_thinking", "data": "xyz" }),
        json!({ "type": "text", "text": "so" }),
    ];
    let blocks = blocks.iter().map(Value::to_string).collect();
    NativeBlocks { format: NativeFormat::Anthropic, provider: None, blocks }
}

fn tell(turn: u32, portions: &[String]) -> Vec<Moment> {
    let mut offset = 0;
    let mut portion = |text: &String| {
        let at = offset;
        offset += text.len();
        Moment::Text { turn, offset: at, text: text.clone() }
    };
    portions.iter().map(&mut portion).collect()
}

/// The moments of one turn: portions, perhaps void and told again, then the reply.
fn turn(turn: u32) -> impl Strategy<Value = Vec<Moment>> {
    let portions = prop::collection::vec("[a-c é\n]{0,4}", 0..4);
    (portions.clone(), portions, any::<(bool, bool, bool)>(), 0..3_usize).prop_map(
        move |(portions, other, (is_void, is_same, is_cut), calls)| {
            let mut moments = tell(turn, &portions);
            let last = if is_void && !is_same { other } else { portions };
            if is_void {
                moments.push(Moment::Void { turn });
                moments.extend(tell(turn, &last));
            }
            let by = |n| if n == 0 { Runner::Caller } else { Runner::Worker };
            let calls: Vec<_> = (0..calls).map(|n| ReplyCall { call: call(&n.to_string(), "f"), by: by(n) }).collect();
            let results = calls.iter().filter(|call| call.by == Runner::Worker).map(|call| {
                let (call_id, name) = (call.call.id.clone(), call.call.name.clone());
                Moment::Result { call_id, name, text: "r".into(), is_error: is_cut }
            });
            let results: Vec<_> = results.collect();
            moments.push(Moment::Reply(Reply { is_cut, ..replied(turn, &format!("{}!", last.concat()), calls) }));
            moments.extend(results);
            moments
        },
    )
}

/// The moments of a whole answer, of one model call or not.
pub(crate) fn any_moments() -> impl Strategy<Value = (bool, Vec<Moment>)> {
    any::<bool>().prop_flat_map(|one_call| (Just(one_call), moments(if one_call { 1 } else { 3 })))
}

/// The moments of a whole answer of at most `most` turns.
pub(crate) fn moments(most: usize) -> impl Strategy<Value = Vec<Moment>> {
    let turns = prop::collection::vec(Just(()), 0..=most)
        .prop_flat_map(|turns| (1..=turns.len() as u32).map(turn).collect::<Vec<_>>());
    let end = prop_oneof![
        Just(Moment::Over(End::Cut)),
        Just(finished("")),
        Just(finished(r#"{"a": 1}"#)),
        Just(Moment::Over(End::Cancelled)),
        Just(failed()),
        prop::collection::vec(0..3_u8, 1..4).prop_map(|kinds| {
            let kind = |kind| match kind {
                0 => WantedKind::Result,
                1 => WantedKind::Answer,
                _ => WantedKind::Approval,
            };
            Moment::Waits(kinds.into_iter().map(|n| wanted(kind(n))).collect())
        }),
    ];
    (turns, end).prop_map(|(turns, end)| {
        let turns = turns.into_iter().flatten();
        std::iter::once(Moment::Started).chain(turns).chain([end]).collect()
    })
}

fn told(moments: &[Moment]) -> Result<String, Option<Fault>> {
    let mut answer = Answer::new(false);
    let mut told = String::new();
    for moment in moments {
        for addition in answer.push(moment)? {
            if let Addition::Text(text) = addition {
                told.push_str(&text);
            }
        }
    }
    assert_eq!(told, answer.text());
    Ok(told)
}

#[test]
fn turns_are_joined_by_a_blank_line() {
    let moments = [
        text(1, "a"),
        Moment::Reply(replied(1, "ab", vec![])),
        Moment::Reply(replied(2, "", vec![])),
        text(3, "c"),
        Moment::Reply(replied(3, "c", vec![])),
        finished("c"),
    ];
    assert_eq!(told(&moments).unwrap(), "ab\n\nc");
}

#[test]
fn untold_output_ends_the_text() {
    let reply = Moment::Reply(replied(1, r#"{"a": 1}"#, vec![]));
    assert_eq!(told(&[reply.clone(), finished(r#"{"a":1}"#)]).unwrap(), r#"{"a": 1}"#);
    assert_eq!(told(&[reply, finished(r#"{"b":1}"#)]).unwrap(), "{\"a\": 1}\n\n{\"b\":1}");
}

#[test]
fn void_turn_goes_on_if_its_text_repeats() {
    let again = |moment| told(&[text(1, "aé"), Moment::Void { turn: 1 }, text(1, "a"), moment]);
    assert_eq!(again(Moment::Reply(replied(1, "aéc", vec![]))).unwrap(), "aéc");
    assert_eq!(again(text(1, "x")), Err(None));
    assert_eq!(again(Moment::Reply(replied(1, "a", vec![]))), Err(None));
}

#[test]
fn failure_has_the_status_of_its_code() {
    let kind = |class: &str, code: &str| {
        let (class, code, summary) = (class.into(), code.into(), String::new());
        failure(&End::Failed { class, code, summary, detail: None }).unwrap().kind
    };
    assert_eq!(kind("transient", "model_timeout"), FaultKind::Unavailable);
    assert_eq!(kind("permanent", "budget_exhausted"), FaultKind::RateLimited);
    assert_eq!(kind("permanent", "context_limit_exceeded"), FaultKind::Invalid);
    assert_eq!(kind("permanent", "panic"), FaultKind::Internal);
    assert_eq!(failure(&End::Cut), None);
}
