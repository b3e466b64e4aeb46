//! Prompt rendering: minijinja templates over `input`, strict about undefined names, bounded in work, memory and
//! size.

use std::sync::LazyLock;

use longhaul_guards::template::{Engine, value_of};
use longhaul_sdk::{Failure, FailureCode};
use minijinja::context;
use serde_json::Value;

/// Instructions that a template may execute: far above a loop over a large input, but a stop for an endless loop.
const FUEL: u64 = 1_000_000;
/// Maximum bytes of one rendered prompt.
const MAX_PROMPT_BYTES: usize = 1 << 20;

static ENGINE: LazyLock<Engine> = LazyLock::new(|| Engine::new(FUEL, MAX_PROMPT_BYTES));

/// Renders `template` with `input` of about `input_bytes` bytes.
///
/// # Errors
/// `invalid_definition` if the template cannot be rendered or its output is too long.
pub async fn render(what: &str, template: &str, input: &Value, input_bytes: usize) -> Result<String, Failure> {
    if !template.contains("{{") && !template.contains("{%") {
        return Ok(template.to_owned());
    }
    let rendered = ENGINE.render(template, input_bytes, || context! { input => value_of(input) }).await;
    // Display names line and cause; Debug would quote the input.
    rendered.map_err(|error| {
        let summary = format!("the {what} template cannot be rendered: {error}");
        Failure::permanent(FailureCode::INVALID_DEFINITION, summary)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    async fn rendered(template: &str, input: Value) -> Result<String, Failure> {
        render("user prompt", template, &input, 0).await
    }

    #[tokio::test]
    async fn input_is_rendered_and_unknown_names_are_refused() {
        assert_eq!(rendered("Hi {{ input.name }}", json!({"name": "<A>"})).await.unwrap(), "Hi <A>");
        assert_eq!(rendered("plain", json!({})).await.unwrap(), "plain");
        let failure = rendered("{{ input.nme }}", json!({"name": "A"})).await.unwrap_err();
        assert_eq!(failure.code, FailureCode::INVALID_DEFINITION);
    }

    #[tokio::test]
    async fn long_number_keeps_its_digits() {
        let input: Value = serde_json::from_str(r#"{"account": 12345678901234567890123, "amount": 1.10}"#).unwrap();
        let rendered = rendered("{{ input.account }} {{ input.amount }} {{ input }}", input).await.unwrap();
        let expected = "12345678901234567890123 1.10 {'account': 12345678901234567890123, 'amount': 1.10}";
        assert_eq!(rendered, expected);
    }

    #[tokio::test]
    async fn an_endless_template_ends() {
        let template = "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}";
        assert!(rendered(template, json!({})).await.is_err());
    }
}
