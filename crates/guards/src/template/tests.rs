//! Tests with hostile templates and with ordinary ones.

use std::{
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
};

use futures::poll;
use serde_json::json;

use super::*;
use crate::cpu_lane::at_once;

const MIB: usize = 1 << 20;

fn render(template: &str, context: serde_json::Value) -> Result<String, Error> {
    Engine::new(1_000_000, MIB).render_within(Allowance::Whole, template, &|| value_of(&context))
}

/// All known ways to make a string or list grow, or a value deep.
const ATTACKS: [&str; 38] = [
    r#"{{ "a\nb"|indent(4000000000000) }}"#,
    r#"{{ "a\nb"|indent(width=18446744073709551615) }}"#,
    r#"{{ "%4000000000d"|format(1) }}"#,
    "{{ input|tojson(indent=4000000000) }}",
    "{{ input|tojson(4000000000) }}",
    "{% set ns = namespace(x='ab') %}{% for i in range(40) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x|length }}",
    "{% set ns = namespace(x='ab') %}{% for i in range(40) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x|length }}",
    "{% set ns = namespace(x=[1, 2]) %}{% for i in range(40) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x|length \
     }}",
    "{% set ns = namespace(x=[1, 2]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace(x=[1, 2]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x|tojson \
     }}",
    "{% set ns = namespace(x=[1]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace(x=[1]) %}{% for i in range(100000) %}{% set ns.x = {'a': ns.x} %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
    "{% set ns = namespace() %}{% set ns.x = [[ns]] %}{{ ns }}",
    "{% set ns = namespace() %}{% set other = namespace(x=ns) %}{% set ns.x = other %}{{ ns }}",
    "{{ input.text|replace('a', 'b' * 100000) }}",
    "{{ 'a' * 100000000 }}",
    "{{ ['a' * 90000000, 'b' * 90000000, 'c' * 90000000] | length }}",
    "{{ ('a' * 9999) * 99999 }}",
    "{% for i in range(100) %}{{ ('a' * 4000000) | upper | length }}{% endfor %}",
    "{% set x %}{{ input.text }}{% endset %}{% set x %}{{ x }}{{ x }}{% endset %}{% set x %}{{ x }}{{ x }}{{ x }}{{ x \
     }}{% endset %}{% set x %}{{ x }}{{ x }}{{ x }}{{ x }}{{ x }}{% endset %}{{ x|length }}",
    "{% set x %}{% for i in range(100000) %}RAW{% endset %}{% endfor %}",
    "{% filter upper %}{% for i in range(90000) \
     %}aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\
     aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa{% endfor %}{% endfilter %}",
    "{% for i in range(100000) %}{{ input.text }}{% endfor %}",
    "{{ range(100000)|join(input.text) }}",
    "{{ [1, 2]|batch(1000000000, 'x') }}",
    "{{ [1, 2]|slice(1000000000) }}",
    "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
    "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "{% include 'x' %}",
    "{% set a = [*input.list, *input.list] %}",
    "{% for i in range(100000) %}{% if input.text == input.text ~ '' %}x{% endif %}{% endfor %}",
    "{% for i in range(100000) %}{% if 'zz' in input.text %}x{% endif %}{% endfor %}",
    "{% for i in range(100000) %}{% set x = input.text[1:] %}{% endfor %}",
    "{% for i in range(100000) %}{% set x = input.list|sort %}{% endfor %}",
    "{% for i in range(100000) %}{% set x = input.text|split('') %}{% endfor %}",
    "{{ input.text|list|map('upper')|map('replace', 'A', input.text)|join }}",
    "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}",
];

#[test]
#[ignore = "run by attacks_stay_within_their_memory, alone in a process with limited memory"]
fn attacks_in_this_process() {
    let input = json!({"input": {"text": "a".repeat(MIB), "list": (0..20_000).collect::<Vec<_>>()}});
    let peak = || -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() >> 10
    };
    let before = peak();
    let chains =
        ["+1", ".a", "|upper", "~1", "[0]", " and 1"].map(|link| format!("{{{{ 1{} }}}}", link.repeat(30_000)));
    let elifs = format!("{{% if 1 %}}{}{{% endif %}}", "{% elif 1 %}".repeat(15_000));
    for attack in ATTACKS.into_iter().chain(chains.iter().map(String::as_str)).chain([elifs.as_str()]) {
        let shown: String = attack.chars().take(120).collect();
        assert!(render(attack, input.clone()).is_err(), "{shown}");
        assert!(peak() - before < 80, "{shown}: {} MiB", peak() - before);
    }
}

#[test]
fn attacks_stay_within_their_memory() {
    let tests = std::env::current_exe().unwrap();
    let run = "ulimit -v 1000000; exec \"$0\" --exact template::tests::attacks_in_this_process --ignored --nocapture";
    let done = Command::new("sh").args(["-c", run]).arg(tests).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn ordinary_templates_render_as_before() {
    let input = json!({"input": {"name": "Ann", "n": 3, "x": 1.5, "none": null, "tags": ["b", "a"],
        "deep": {"k": [1, {"z": "<q>"}]}}});
    for template in [
        "Hi {{ input.name }}{% if input.n > 2 and not input.none %} many{% elif input.n == 1 %} one{% else %} few{% \
         endif %}",
        "{% for tag in input.tags|sort if tag != 'x' %}{{ loop.index }}.{{ tag|upper }}{% if not loop.last %}, {% \
         endif %}{% else %}-{% endfor %}",
        "{{ input.name ~ '/' ~ input.n ~ input.none ~ [1, 'a'] }} {{ 'a' * 3 }} {{ 2 * 3 + 1.5 - input.x }} {{ 7 // 2 \
         }} {{ 2 ** 10 }} {{ 1 + true }}",
        "{% set a, b = input.tags %}{{ a }}{{ b }}{% set ns = namespace(s=0) %}{% for i in range(4) %}{% set ns.s = \
         ns.s + i %}{% endfor %}{{ ns.s }}",
        "{{ input.deep|tojson }} {{ input.deep|tojson(indent=2) }} {{ input.deep }} {{ input.tags|join('-') }} \
         {{ (input.tags + ['c'])|length }}",
        "{{ 'hello world'[2:5] }}{{ 'hello'[:-2] }}{{ [1,2,3,4][1::2] }} {{ {'k': [1]}['k'][0] }} {{ 'ell' in 'hello' \
         }} {{ 'a' not in input.tags }}",
        "{{ 'a\nb'|indent(4) }}{{ 'x'|default('y') }}{{ input.none|default('d', true) }}{{ 'abc'|replace('b', 'XX') \
         }}{{ '1,2'|split(',')|map('int')|list }}",
        "{%- set body -%}  {{ input.name }} {%- endset -%}{{ body|trim }}{% with v = 2 %}{{ v }}{% endwith %}{# note \
         #}{% raw %}{{ x }}{% endraw %}",
        "{{ input.tags is sequence }}{{ input.nope is defined }}{{ input.n is odd }}{{ 'x' if input.n is eq 3 else 'y' \
         }} {{ 1.0 }} {{ 10000000000 * 10000000000 }}",
    ] {
        let mut plain = minijinja::Environment::new();
        plain.set_undefined_behavior(UndefinedBehavior::Strict);
        let expected = plain.render_str(template, value_of(&input)).unwrap();
        let rendered = render(template, input.clone()).unwrap_or_else(|error| panic!("{template}: {error}"));
        assert_eq!(rendered, expected, "{template}");
    }
    assert!(render("{{ input.nope }}", input.clone()).unwrap_err().to_string().contains("undefined"));
    assert!(render("{{ 'x' ~ input.nope }}", input).is_err());
}

fn written(template: &str, input: &str) -> String {
    let input: serde_json::Value = serde_json::from_str(input).unwrap();
    render(template, json!({ "input": input })).unwrap()
}

#[test]
fn numbers_print_as_they_were_written() {
    let input = r#"{"n": [7, -7, 12345678901234567890123, 1.10, 1.1, 1.100, 2.5, 0.5000, 1e-7, -0,
        0.12345678901234567890123, 1234567890123456789012345678901234567890123456]}"#;
    let texts = [
        "7",
        "-7",
        "12345678901234567890123",
        "1.10",
        "1.1",
        "1.100",
        "2.5",
        "0.5000",
        "1e-7",
        "-0",
        "0.12345678901234567890123",
        "1234567890123456789012345678901234567890123456",
    ];
    let (listed, joined) = (format!("[{}]", texts.join(", ")), texts.join(" "));
    assert_eq!(written("{% for n in input.n %}{{ n }} {% endfor %}", input).trim_end(), joined);
    assert_eq!(written("{{ input.n }}", input), listed);
    assert_eq!(written("{{ input }}", input), format!("{{'n': {listed}}}"));
    assert_eq!(written("{{ input | tojson }}", input), format!("{{\"n\": {listed}}}"));
    assert_eq!(written("{{ input.n | join(' ') }}", input), joined);
    assert_eq!(written("{{ input.n[3] | string }}", input), "1.10");
}

#[test]
fn numbers_still_compute() {
    let input = r#"{"price": "x", "amount": 1500.00, "wei": 12345678901234567890123, "n": 3}"#;
    assert_eq!(written("{{ input.amount * 2 }} {{ input.n + 1 }} {{ input.wei + 1 }}", input), {
        "3000.0 4 12345678901234567890124"
    });
    assert_eq!(written("{% if input.amount > 1000 and input.wei > 5 %}yes{% endif %}", input), "yes");
    assert_eq!(written("{{ input.amount == 1500 }}", input), "True");
    let twice = r#"{"a": 1.1, "b": 1.10, "c": 1.100}"#;
    let compared = "{{ input.a == input.c }} {{ input.c in [1.1, 2] }}";
    assert_eq!(written(compared, twice), "True True");
    let computed = "{{ input.b - 1.1 }} {{ -input.c + 1.1 }} {{ input.b ~ '' }}";
    assert_eq!(written(computed, twice), "0.0 0.0 1.10");
}

#[test]
fn tojson_is_as_that_of_minijinja() {
    let input = json!({"a": [1, true, null, "<é'&>\n", 2.5, 1e300], "c": {}, "d": [], "e": {"1": 0.1}});
    for filter in ["tojson", "tojson(2)", "tojson(indent=4)", "tojson(true)", "tojson(false)"] {
        let template = format!("{{{{ input | {filter} }}}}{{{{ {{1: 2, 'x': 1e300}} | {filter} }}}}");
        let plain = minijinja::Environment::new();
        let expected = plain.render_str(&template, minijinja::context! { input => value_of(&input) }).unwrap();
        assert_eq!(written(&template, &input.to_string()), expected, "{filter}");
    }
}

#[test]
fn spellings_of_one_number_stay_distinct() {
    let texts: Vec<String> = (1..100_usize).map(|zeros| format!("1.{}", "0".repeat(zeros))).collect();
    assert_eq!(written("{{ input }}", &format!("[{}]", texts.join(","))), format!("[{}]", texts.join(", ")));
}

/// Renders `source`. Returns the number of times that rendering started.
async fn beginnings(source: &str, context_bytes: usize) -> usize {
    let engine = Engine::new(1_000_000, MIB);
    let whole = engine.render_within(Allowance::Whole, source, &|| Value::UNDEFINED);
    let begun = AtomicUsize::new(0);
    let context = || {
        begun.fetch_add(1, Ordering::Relaxed);
        Value::UNDEFINED
    };
    let rendered = engine.render(source, context_bytes, context).await;
    assert_eq!(rendered.map_err(|error| error.to_string()), whole.map_err(|error| error.to_string()));
    begun.into_inner()
}

#[tokio::test]
async fn costly_rendering_begins_again_in_its_turn() {
    assert_eq!(beginnings("{% for i in range(100) %}{{ i }},{% endfor %}", 0).await, 1);
    assert_eq!(beginnings("{{ nothing.at.all }}", 0).await, 1);
    let instructions = "{% for i in range(20000) %}x{% endfor %}";
    let memory = "{{ 'x' * 716800 }}";
    let endless = "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}";
    for costly in [instructions, memory, endless] {
        assert_eq!(beginnings(costly, 0).await, 2, "{costly}");
    }
    // The lane is full, so only the large rendering waits.
    let mut turns = Vec::new();
    for _ in 0..at_once() {
        turns.push(COSTLY.turn().await);
    }
    let engine = Engine::new(1_000_000, MIB);
    assert!(engine.render("short", 0, || Value::UNDEFINED).await.is_ok());
    let mut large = Box::pin(engine.render("short", BRIEF_BYTES, || Value::UNDEFINED));
    assert!(poll!(&mut large).is_pending());
}
