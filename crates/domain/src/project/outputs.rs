//! Outputs of tasks in the prompts of later ones: `{{ tasks.KEY.output }}`. Everything else in a prompt stays as it is:
//! models write prompts, and their braces are no templates.

/// Bytes of one output in a prompt; a longer one is cut.
pub const MAX_OUTPUT_BYTES: usize = 16 * 1024;

/// Stands for the output of a task whose content was erased.
const ERASED: &str = "[the output was erased]";

/// Keys of the tasks whose outputs a prompt names, as often as it names them.
#[must_use]
pub fn named_outputs(prompt: &str) -> Vec<&str> {
    parts(prompt).into_iter().filter_map(|(_, key)| key).collect()
}

/// The prompt with the outputs that it names.
#[must_use]
pub fn fill<'a>(prompt: &str, output_of: impl Fn(&str) -> Option<&'a str>) -> String {
    let mut filled = String::with_capacity(prompt.len());
    for (text, key) in parts(prompt) {
        filled.push_str(text);
        if let Some(key) = key {
            filled.push_str(output_of(key).unwrap_or(ERASED));
        }
    }
    filled
}

/// Texts, each with the key that is named behind it; the last without one.
fn parts(prompt: &str) -> Vec<(&str, Option<&str>)> {
    let (mut parts, mut begin, mut from) = (Vec::new(), 0, 0);
    while let Some(at) = prompt[from..].find("{{").map(|at| from + at) {
        match reference(&prompt[at..]) {
            Some((key, length)) => {
                parts.push((&prompt[begin..at], Some(key)));
                begin = at + length;
                from = begin;
            }
            None => from = at + 1,
        }
    }
    parts.push((&prompt[begin..], None));
    parts
}

/// The key that a text begins to name, and the length of the mention.
fn reference(text: &str) -> Option<(&str, usize)> {
    let rest = text.strip_prefix("{{")?.trim_start_matches(' ').strip_prefix("tasks.")?;
    let end = rest.find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-')))?;
    let after = rest[end..].strip_prefix(".output")?.trim_start_matches(' ').strip_prefix("}}")?;
    (end > 0).then(|| (&rest[..end], text.len() - after.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_replace_their_mentions_and_nothing_else() {
        let prompt = "A {{tasks.a.output}} b {{{ tasks.b-2.output }}} {{ tasks.a.output}} {{x}} {{tasks.A.output}} {{";
        assert_eq!(named_outputs(prompt), ["a", "b-2", "a"]);
        let filled = fill(prompt, |key| if key == "a" { Some("{{tasks.b-2.output}}") } else { Some("2") });
        assert_eq!(filled, "A {{tasks.b-2.output}} b {2} {{tasks.b-2.output}} {{x}} {{tasks.A.output}} {{");
        assert_eq!(fill("{{tasks.a.output}}", |_| None), ERASED);
        assert!(named_outputs("{{tasks..output}} {{tasks.a.b}} tasks.a.output").is_empty());
    }
}
