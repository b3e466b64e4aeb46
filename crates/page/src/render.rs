//! Renders templates. minijinja escapes HTML because their names end in `.html`. Characters that hide or turn text are
//! shown as codes.

use std::sync::LazyLock;

use longhaul_guards::template::value_of;
use longhaul_shared::visible::visible;
use minijinja::{Environment, Error, UndefinedBehavior, escape_formatter};
use rust_embed::RustEmbed;
use serde_json::Value as Json;

use crate::{assets, dag, format, waterfall};

#[derive(RustEmbed)]
#[folder = "templates/"]
struct Templates;

/// Start of the content, as `base.html` writes it.
const MAIN: &str = "<main id=\"main\">";

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    // A screen is shown without what an optional read did not bring.
    environment.set_undefined_behavior(UndefinedBehavior::Chainable);
    environment.set_formatter(|out, state, value| match value.as_str().filter(|_| !value.is_safe()) {
        Some(text) => escape_formatter(out, state, &visible(text).collect::<String>().into()),
        None => escape_formatter(out, state, value),
    });
    format::register(&mut environment);
    environment.add_function("waterfall", waterfall::rows);
    environment.add_function("dag", dag::layout);
    environment.add_global("assets", assets::version());
    for name in Templates::iter() {
        let source = Templates::get(&name).map(|file| String::from_utf8_lossy(&file.data).into_owned());
        if let Err(error) = environment.add_template_owned(name.into_owned(), source.unwrap_or_default()) {
            tracing::error!(error = format!("{error:#}"), "a template of the page does not parse");
        }
    }
    environment
});

/// A whole page.
pub(crate) fn page(template: &str, values: &Json) -> String {
    shown(template, ENVIRONMENT.get_template(template).and_then(|template| template.render(value_of(values))))
}

/// The content of the page's `<main>`, for updates. Texts of others are escaped, so they cannot end it.
pub(crate) fn main(template: &str, values: &Json) -> String {
    let page = page(template, values);
    let content = page.split_once(MAIN).and_then(|(_, rest)| rest.rsplit_once("</main>"));
    content.map(|(content, _)| content.to_owned()).unwrap_or_default()
}

fn shown(template: &str, rendered: Result<String, Error>) -> String {
    rendered.unwrap_or_else(|error| {
        tracing::error!(error = format!("{error:#}"), template, "the page cannot be rendered");
        "The page cannot be rendered; the log says why.".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hidden_characters_are_shown_as_codes() {
        let values = json!({ "name": "pay \u{202e}001\u{200b}<b>", "arguments": { "to": "A\u{202e}\u{1b}" } });
        let shown = |source| ENVIRONMENT.render_named_str("t.html", source, value_of(&values)).unwrap();
        assert_eq!(shown("{{ name }}"), "pay \\u{202e}001\\u{200b}&lt;b&gt;");
        let exact = shown("{{ arguments | pretty }}").replace("&quot;", "\"");
        assert!(exact.contains("A\\u202e\\u001b"), "{exact}");
        assert_eq!(serde_json::from_str::<Json>(&exact).unwrap(), values["arguments"], "edited arguments stay valid");
    }
}
