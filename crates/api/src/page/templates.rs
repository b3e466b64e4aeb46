//! Renders the templates. minijinja escapes HTML because their names end in `.html`.

use std::sync::LazyLock;

use longhaul_shared::template::value_of;
use minijinja::Environment;
use serde_json::{Value, json};

static TEMPLATES: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    for (name, source) in [
        ("base.html", include_str!("templates/base.html")),
        ("overview.html", include_str!("templates/overview.html")),
        ("detail.html", include_str!("templates/detail.html")),
        ("login.html", include_str!("templates/login.html")),
    ] {
        if let Err(error) = environment.add_template(name, source) {
            tracing::error!(error = %error, template = name, "a template of the status page does not parse");
        }
    }
    environment
});

pub(super) fn overview(values: Value) -> String {
    render("overview.html", values)
}

pub(super) fn detail(values: Value) -> String {
    render("detail.html", values)
}

pub(super) fn login(problem: Option<&str>) -> String {
    render("login.html", json!({ "problem": problem }))
}

fn render(name: &str, values: Value) -> String {
    let rendered = TEMPLATES.get_template(name).and_then(|template| template.render(value_of(&values)));
    rendered.unwrap_or_else(|error| {
        tracing::error!(error = %error, template = name, "the status page cannot be rendered");
        "The status page cannot be rendered; the log says why.".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caller_text_is_escaped_in_html() {
        let values = json!({
            "e": {"id": "i", "definition": {}, "agent": {}, "usage": {}, "failure": {"code": "<u>", "summary": "<script>"}},
            "input": "<script>alert(1)</script>", "timeline": [{"at": "", "type": "step", "name": "<i>", "text": "<img>"}],
            "waiting": [{"id": "7", "what": "approval of <b>", "shown": "<script>", "since": "", "until": ""}],
        });
        let html = detail(values);
        assert!(html.contains("&lt;script&gt;"), "{html}");
        for raw in ["<script>", "<img>", "<i>", "<u>", "of <b>"] {
            assert!(!html.contains(raw), "{raw}");
        }
    }

    #[test]
    fn pages_render() {
        assert!(login(Some("no")).contains("no"));
        let html = overview(json!({"counts": [{"status": "PENDING", "n": 7}], "rows": [], "viewer": "tenant a"}));
        assert!(html.contains("tenant a") && html.contains('7'), "{html}");
    }
}
