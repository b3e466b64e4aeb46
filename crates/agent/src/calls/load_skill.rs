//! `load_skill`: puts the instructions of a skill, or one of its files, into the conversation, once.
//!
//! A result begins with a line that names skill and file. While the conversation has it, another load of the same
//! file answers that it is there; after a compression has removed it, it is loaded again.

use longhaul_domain::{CallError, CallErrorKind, cut, requirements::LOAD_SKILL};
use longhaul_llm::Message;
use longhaul_sdk::{Step, spec::SKILL_FILE};
use longhaul_store::{catalogue::skills::PinnedSkill, database::retry::patiently};
use serde_json::Value;

use crate::{
    Agent,
    journal::{Writer, from_store},
    ready_call::{HostToolAnswer, ReadyCall},
};

/// Paths listed with the instructions of a skill, in bytes.
const MAX_LISTED_BYTES: usize = 4_096;

/// The part of the system prompt that offers skills; `None` without any. Its bytes depend on the agent's version alone.
#[must_use]
pub fn offer(skills: &[PinnedSkill]) -> Option<String> {
    let line = |skill: &PinnedSkill| {
        let description = skill.description.split_whitespace().collect::<Vec<_>>().join(" ");
        format!("- {}: {description}", skill.name)
    };
    let lines: Vec<String> = skills.iter().map(line).collect();
    (!lines.is_empty()).then(|| {
        format!(
            "Skills have instructions for kinds of tasks. When a task fits one, load it with `{LOAD_SKILL}` before you \
             begin.\n{}",
            lines.join("\n")
        )
    })
}

/// The text, or the reason why there is none. `is_present` tells if the conversation has a result that begins with
/// a line.
///
/// # Errors
/// An interrupt, or a failure of the store.
pub(super) async fn call(
    agent: &Agent,
    journal: &Writer,
    call: &ReadyCall,
    is_present: impl Fn(&str) -> bool,
) -> Step<HostToolAnswer> {
    let refuse = |message: String| call.refused(&agent.toolbox, &CallError::new(CallErrorKind::Runtime, message));
    let argument = |name: &str| call.arguments.get(name).and_then(Value::as_str);
    let (name, file) = (argument("name").unwrap_or_default(), argument("file").unwrap_or(SKILL_FILE));
    let Some(skill) = agent.skills.iter().find(|skill| skill.name == name) else {
        let known: Vec<&str> = agent.skills.iter().map(|skill| skill.name.as_str()).collect();
        return Ok(refuse(format!("there is no skill `{}` (skills: {})", cut(name, 128), known.join(", "))));
    };
    let heading = format!("# Skill {name}: {file}\n");
    let store = &journal.deps.store;
    let (text, paths) = patiently(store.trouble(), || store.skill_file(skill.id, file)).await.map_err(from_store)?;
    let others = paths.iter().filter(|path| *path != SKILL_FILE).map(String::as_str).collect::<Vec<_>>().join(", ");
    let others = cut(&others, MAX_LISTED_BYTES);
    let Some(text) = text else {
        return Ok(refuse(format!("the skill `{name}` has no file `{}` (files: {others})", cut(file, 128))));
    };
    let text = if file == SKILL_FILE && !others.is_empty() {
        format!("{heading}{}\n\nFiles of this skill, to load with `file`: {others}", text.trim_end())
    } else {
        format!("{heading}{text}")
    };
    let most = agent.toolbox.max_result_bytes();
    Ok(call.answered(
        &agent.toolbox,
        match is_present(&heading) {
            false => text,
            true if text.len() <= most => format!("`{file}` of the skill `{name}` is already in this conversation."),
            true => format!(
                "The beginning of `{file}` of the skill `{name}` is already in this conversation; the rest exceeds the \
             agent's limit of {most} bytes for one result."
            ),
        },
    ))
}

/// Returns true if `message` is the result of a load that begins with `heading`.
pub(super) fn is_load(message: &Message, heading: &str) -> bool {
    matches!(
        message,
        Message::Tool { name, text, is_error: false, .. } if name == LOAD_SKILL && text.starts_with(heading)
    )
}

#[cfg(test)]
mod tests {
    use longhaul_domain::SkillVersionId;

    use super::*;

    const ID: &str = "0197f3a0-0000-7000-8000-000000000000";

    #[test]
    fn offer_lists_one_line_per_skill() {
        let skill = |name: &str, description: &str| PinnedSkill {
            id: ID.parse::<SkillVersionId>().unwrap(),
            name: name.into(),
            description: description.into(),
        };
        let offered = offer(&[skill("b", "For\n- bees"), skill("a", "Ants")]).unwrap();
        assert!(offered.ends_with(".\n- b: For - bees\n- a: Ants"), "{offered}");
        assert_eq!(offer(&[]), None);
    }
}
