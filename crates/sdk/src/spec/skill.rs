//! The record of a skill: instructions for a kind of task, with files, which an agent loads when it needs them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SKILL_NAME;
use crate::json_pointer::token;

/// Name under which the instructions of a skill are loaded; no other file can have it.
pub const SKILL_FILE: &str = "SKILL.md";

/// Postgres stores no such text.
const HAS_NUL: &str = "contains the character U+0000";

/// A skill as in the [Agent Skills](https://agentskills.io/specification) format: a folder with `SKILL.md`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SkillSpec {
    /// Name; the name of its folder.
    #[schemars(regex(pattern = SKILL_NAME), length(max = 64))]
    pub name: String,
    /// The tasks that the skill is for, shown to the model before it loads the skill.
    #[schemars(length(min = 1, max = SkillSpec::MAX_DESCRIPTION_CHARS))]
    pub description: String,
    /// Instructions: `SKILL.md` without its front matter.
    pub body: String,
    /// Further texts by path in the folder, such as `references/rates.md`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = SkillSpec::MAX_FILES))]
    pub files: BTreeMap<String, String>,
}

impl SkillSpec {
    /// Maximum characters of the description.
    pub const MAX_DESCRIPTION_CHARS: usize = 1_024;
    /// Maximum bytes of the instructions, and of each file: with its heading and the paths of other files, it fits into
    /// one result of a tool at its usual limit of 64 KiB.
    pub const MAX_TEXT_BYTES: usize = 56 * 1024;
    /// Maximum number of further files.
    pub const MAX_FILES: usize = 100;
    /// Maximum bytes of the instructions and all files.
    pub const MAX_BYTES: usize = 1 << 20;
    /// Maximum bytes of a file's path.
    pub const MAX_PATH_BYTES: usize = 255;

    /// Violations of the rules of a skill, as JSON pointers with reasons. The schema expresses some of them.
    ///
    /// ```
    /// use longhaul_sdk::spec::SkillSpec;
    ///
    /// let mut skill = SkillSpec {
    ///     name: "refunds".into(),
    ///     description: "Rules for refunds.".into(),
    ///     body: "Refund within 30 days.".into(),
    ///     files: [("references/rates.md".to_owned(), "2 %".to_owned())].into(),
    /// };
    /// assert!(skill.problems().is_empty());
    /// skill.files.insert("../secret".into(), String::new());
    /// assert_eq!(skill.problems()[0].0, "/files/..~1secret");
    /// ```
    #[must_use]
    pub fn problems(&self) -> Vec<(String, String)> {
        let mut problems = Vec::new();
        let mut add = |place: String, reason: String| problems.push((place, reason));
        if !Self::is_name(&self.name) {
            let reason = "must be 1 to 64 lower-case letters and digits, with single hyphens between them";
            add("/name".into(), reason.into());
        }
        if !(1..=Self::MAX_DESCRIPTION_CHARS).contains(&self.description.chars().count()) {
            add("/description".into(), format!("must be 1 to {} characters", Self::MAX_DESCRIPTION_CHARS));
        }
        if self.description.contains('\0') {
            add("/description".into(), HAS_NUL.into());
        }
        if self.body.trim().is_empty() {
            add("/body".into(), "is empty".into());
        }
        if let Some(reason) = text_problem(&self.body) {
            add("/body".into(), reason);
        }
        if self.files.len() > Self::MAX_FILES {
            add("/files".into(), format!("are more than {}", Self::MAX_FILES));
        }
        if self.files.values().map(String::len).sum::<usize>() + self.body.len() > Self::MAX_BYTES {
            add("/files".into(), format!("are larger than {} bytes together with the body", Self::MAX_BYTES));
        }
        for (path, text) in &self.files {
            let pointer = || format!("/files/{}", token(path));
            if !is_path(path) {
                add(pointer(), "is no path of a file below the skill's folder".into());
            }
            if let Some(reason) = text_problem(text) {
                add(pointer(), reason);
            }
        }
        problems
    }

    /// Returns true if `name` is a valid name: lower-case letters, digits and single hyphens between them.
    fn is_name(name: &str) -> bool {
        let is_word = |word: &str| {
            !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        name.len() <= 64 && name.split('-').all(is_word)
    }
}

/// The reason why a result of a tool cannot have `text`; `None` if it can.
fn text_problem(text: &str) -> Option<String> {
    if text.len() > SkillSpec::MAX_TEXT_BYTES {
        return Some(format!("is larger than {} bytes", SkillSpec::MAX_TEXT_BYTES));
    }
    text.contains('\0').then(|| HAS_NUL.to_owned())
}

/// Returns true for a relative path of plain segments that is not [`SKILL_FILE`]. A path is one line of a result.
fn is_path(path: &str) -> bool {
    let is_plain =
        |segment: &str| !matches!(segment, "" | "." | "..") && !segment.contains(|c: char| c == '\\' || c.is_control());
    path.len() <= SkillSpec::MAX_PATH_BYTES && path != SKILL_FILE && path.split('/').all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skill(body: &str, files: &[(&str, &str)]) -> SkillSpec {
        SkillSpec {
            name: "s".into(),
            description: "d".into(),
            body: body.into(),
            files: files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect(),
        }
    }

    #[test]
    fn names_follow_the_specification() {
        for name in ["a", "pdf-processing", "a1-2b", &"x".repeat(64)] {
            assert!(SkillSpec::is_name(name), "{name}");
        }
        for name in ["", "-a", "a-", "a--b", "A", "a_b", "a.b", "ä", &"x".repeat(65)] {
            assert!(!SkillSpec::is_name(name), "{name}");
        }
    }

    #[test]
    fn sizes_and_paths_are_bounded() {
        assert!(skill("x", &[("a/b.md", ""), ("..a", "")]).problems().is_empty());
        let long = "p".repeat(256);
        for path in ["", "/a", "a/", "a//b", "../a", "a/./b", "a\\b", "a\nb", SKILL_FILE, &long] {
            assert_eq!(skill("x", &[(path, "")]).problems().len(), 1, "{path}");
        }
        assert_eq!(skill(" \n", &[]).problems().len(), 1);
        let longest = "x".repeat(SkillSpec::MAX_TEXT_BYTES);
        assert!(skill(&longest, &[("a", &longest)]).problems().is_empty());
        let places =
            |skill: SkillSpec| -> Vec<String> { skill.problems().into_iter().map(|(place, _)| place).collect() };
        let larger = format!("{longest}x");
        assert_eq!(places(skill(&larger, &[("b/a", &larger)])), ["/body", "/files/b~1a"]);
        let names: Vec<String> = (0..=SkillSpec::MAX_FILES).map(|n| format!("f{n}")).collect();
        let with = |count: usize, text: &str| {
            let files: Vec<(&str, &str)> = names[..count].iter().map(|name| (name.as_str(), text)).collect();
            places(skill("x", &files))
        };
        assert_eq!(with(SkillSpec::MAX_FILES, ""), [""; 0]);
        assert_eq!(with(SkillSpec::MAX_FILES + 1, ""), ["/files"]);
        assert_eq!(with(SkillSpec::MAX_BYTES / longest.len() + 1, &longest), ["/files"]);
    }

    #[test]
    fn name_and_description_are_checked() {
        let place = |change: fn(&mut SkillSpec)| {
            let mut skill = skill("x", &[("a", "x")]);
            change(&mut skill);
            skill.problems().into_iter().map(|(place, _)| place).collect::<Vec<_>>()
        };
        assert_eq!(place(|skill| skill.name = "Refunds".into()), ["/name"]);
        assert_eq!(place(|skill| skill.description = String::new()), ["/description"]);
        assert_eq!(place(|skill| skill.description = "ä".repeat(1_024)), [""; 0]);
        assert_eq!(place(|skill| skill.description = "ä".repeat(1_025)), ["/description"]);
        assert_eq!(place(|skill| skill.description = "a\0".into()), ["/description"]);
        assert_eq!(place(|skill| skill.body = "a\0".into()), ["/body"]);
        assert_eq!(place(|skill| drop(skill.files.insert("a".into(), "\0".into()))), ["/files/a"]);
    }
}
