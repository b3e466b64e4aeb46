//! Rendering prompts: minijinja templates over `input`, strict about undefined names and bounded in work and size.

use longhaul_sdk::{Failure, FailureCode};
use minijinja::{Environment, UndefinedBehavior, context, value::Serde};
use serde_json::Value;

/// Instructions a template may execute; a loop over a large input stays far below, an endless one does not.
const FUEL: u64 = 1_000_000;
/// Bytes of one rendered prompt.
const MAX_PROMPT_BYTES: usize = 1 << 20;

/// Renders `template` with `input`.
///
/// # Errors
/// `invalid_definition` for a template that cannot be rendered or is too long.
pub(crate) fn render(what: &str, template: &str, input: &Value) -> Result<String, Failure> {
    let invalid = |reason: String| {
        Failure::permanent(FailureCode::INVALID_DEFINITION, format!("the {what} template cannot be rendered: {reason}"))
    };
    if !template.contains("{{") && !template.contains("{%") {
        return Ok(template.to_owned());
    }
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    // The error's own text names line and cause; its debug form would quote the input.
    let rendered = environment
        .render_str(template, context! { input => Serde(input) })
        .map_err(|error| invalid(error.to_string()))?;
    if rendered.len() > MAX_PROMPT_BYTES {
        return Err(invalid(format!("it is {} bytes long, {MAX_PROMPT_BYTES} are allowed", rendered.len())));
    }
    Ok(rendered)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn input_is_rendered_and_unknown_names_are_refused() {
        assert_eq!(render("user prompt", "Hi {{ input.name }}", &json!({"name": "<A>"})).unwrap(), "Hi <A>");
        assert_eq!(render("user prompt", "plain", &json!({})).unwrap(), "plain");
        let failure = render("user prompt", "{{ input.nme }}", &json!({"name": "A"})).unwrap_err();
        assert_eq!(failure.code, FailureCode::INVALID_DEFINITION);
    }

    #[test]
    fn an_endless_template_ends() {
        let template = "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}";
        assert!(render("user prompt", template, &json!({})).is_err());
    }
}
