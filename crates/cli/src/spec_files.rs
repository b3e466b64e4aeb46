//! Reads agents, definitions and platform documents from YAML files, and skills from folders.
//!
//! Everything that can be checked without a worker is checked before the first file is applied, with the rules of the
//! API (`longhaul_api::records`), and all mistakes are told with file and line. A file with `prompts` is an agent, one
//! with `agent_key` a definition, one with `kind: platform` a platform document. A folder with `SKILL.md` is a skill as
//! a whole.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use longhaul_api::{Violation, records};
use longhaul_contract::catalogue::PlatformSpec;
use longhaul_llm::scripted::ScriptedModel;
use longhaul_sdk::spec::{AgentSpec, DefinitionSpec, SKILL_FILE, SkillSpec};
use serde_json::Value;

use crate::{
    located_yaml::{Lines, Located},
    skill_folder,
    spec_file_error::{SpecFileError, SpecProblem},
};

/// A record and where it was read.
#[derive(Debug)]
pub struct Source<S> {
    /// The file, or the folder of a skill.
    pub path: PathBuf,
    pub spec: S,
    lines: Lines,
}

impl<S> Source<S> {
    /// A problem at a JSON pointer of the record.
    #[must_use]
    pub fn problem(&self, pointer: &str, what: impl std::fmt::Display) -> SpecProblem {
        problem((&self.path, &self.lines), pointer, what)
    }
}

/// Kind of a document that is compared by the names in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Agent,
    Definition,
}

/// The records read from files and directories.
#[derive(Debug, Default)]
pub struct SpecFiles {
    pub skills: Vec<Source<SkillSpec>>,
    pub agents: Vec<Source<AgentSpec>>,
    pub definitions: Vec<Source<DefinitionSpec>>,
    pub platforms: Vec<Source<PlatformSpec>>,
    /// All agents and definitions as they are written, also those with mistakes.
    pub written: Vec<(Kind, Source<Value>)>,
    /// Every mistake in every file.
    pub problems: Vec<SpecProblem>,
}

impl SpecFiles {
    /// Reads each file of `paths`, and every `*.yaml`, `*.yml` and skill below each directory in order of name.
    #[must_use]
    pub fn read(paths: &[PathBuf]) -> Self {
        let mut read = Self::default();
        for path in paths {
            let before = read.problems.len();
            if !read.add_all(path) && read.problems.len() == before {
                read.problems.extend(SpecFileError::new(path, "there is no .yaml file and no skill in it").0);
            }
        }
        read.find_doubles();
        read
    }

    /// As [`read`](Self::read), but a directory without files is no mistake.
    #[must_use]
    pub fn read_any(paths: &[PathBuf]) -> Self {
        let mut read = Self::default();
        for path in paths {
            read.add_all(path);
        }
        read.find_doubles();
        read
    }

    /// The files, if they have no mistakes.
    ///
    /// # Errors
    /// The mistakes.
    pub fn sound(self) -> Result<Self, SpecFileError> {
        if self.problems.is_empty() { Ok(self) } else { Err(SpecFileError(self.problems)) }
    }

    /// Replaces the command `longhaul` of tool servers by `program`, which need not be in the search path.
    pub fn start_own_tools_with(&mut self, program: &Path) {
        for agent in &mut self.agents {
            for server in agent.spec.mcp_servers.values_mut() {
                if let Some(first) = server.command.first_mut()
                    && first == "longhaul"
                {
                    *first = program.to_string_lossy().into_owned();
                }
            }
        }
    }

    /// Returns false if there is no file.
    fn add_all(&mut self, path: &Path) -> bool {
        let mut files = Vec::new();
        let mut found = collect(path, &mut files);
        for file in &files {
            found = found.and_then(|()| self.add(file)).or_else(|error| {
                self.problems.extend(error.0);
                Ok(())
            });
        }
        self.problems.extend(found.err().into_iter().flat_map(|error| error.0));
        !files.is_empty()
    }

    fn add(&mut self, path: &Path) -> Result<(), SpecFileError> {
        let path = path.to_owned();
        if path.is_dir() {
            let spec = skill_folder::read(&path)?;
            self.skills.push(Source { path, spec, lines: Lines::default() });
            return Ok(());
        }
        let text = fs::read_to_string(&path).map_err(|error| SpecFileError::new(&path, error))?;
        let Located { value, lines } =
            Located::read(&text).map_err(|(line, reason)| SpecFileError::at(&path, line, reason))?;
        let Value::Object(members) = &value else {
            return Err(SpecFileError::new(&path, "it is no record: names and values are missing"));
        };
        let has = |name: &str| members.contains_key(name);
        let is_platform = members.get("kind").and_then(Value::as_str) == Some("platform");
        match (is_platform, has("prompts"), has("agent_key")) {
            (true, _, _) => self.platforms.push(read_as(records::read_platform, path, &value, lines)?),
            (false, true, false) => {
                self.written
                    .push((Kind::Agent, Source { path: path.clone(), spec: value.clone(), lines: lines.clone() }));
                self.agents.push(read_as(read_agent, path, &value, lines)?);
            }
            (false, false, true) => {
                let source = Source { path: path.clone(), spec: value.clone(), lines: lines.clone() };
                self.written.push((Kind::Definition, source));
                self.definitions.push(read_as(records::read_definition, path, &value, lines)?);
            }
            (false, true, true) => {
                let what = "`prompts` is of agents, `agent_key` of definitions";
                return Err(SpecFileError::at(&path, lines.of("/agent_key"), what));
            }
            (false, false, false) => {
                let what = "neither an agent (which has `prompts`) nor a definition (which has `agent_key`) nor `kind: platform`";
                return Err(SpecFileError::new(&path, what));
            }
        }
        Ok(())
    }

    /// Keys that two files have.
    fn find_doubles(&mut self) {
        let skills = self.skills.iter().map(|one| (None, one.spec.name.as_str(), &one.path, one.problem("", "")));
        let written = self.written.iter().filter_map(|(kind, one)| {
            Some((Some(*kind), one.spec["key"].as_str()?, &one.path, one.problem("/key", "")))
        });
        let mut seen = BTreeMap::new();
        for (kind, key, path, place) in written.chain(skills) {
            if let Some(first) = seen.insert((kind, key), path) {
                let what = format!("/key: `{key}` is also in {}", first.display());
                self.problems.push(SpecProblem { what, ..place });
            }
        }
    }
}

fn problem((path, lines): (&Path, &Lines), pointer: &str, what: impl std::fmt::Display) -> SpecProblem {
    let what = if pointer.is_empty() { what.to_string() } else { format!("{pointer}: {what}") };
    SpecProblem { file: path.to_owned(), line: lines.of(pointer), what }
}

/// Reads a record with the rules of the API.
fn read_as<S>(
    read: impl Fn(&[u8]) -> Result<S, Vec<Violation>>,
    path: PathBuf,
    value: &Value,
    lines: Lines,
) -> Result<Source<S>, SpecFileError> {
    match read(value.to_string().as_bytes()) {
        Ok(spec) => Ok(Source { path, spec, lines }),
        Err(violations) => {
            let told = violations.into_iter().map(|one| {
                let at = problem((&path, &lines), &one.path, &one.message);
                // The message begins with what it is about, in quotes.
                let mark = one.message.split('`').nth(1).and_then(|name| name.rsplit('.').next()).unwrap_or_default();
                match one.line {
                    Some(inner) => SpecProblem { line: lines.within(&one.path, inner, mark), ..at },
                    None => at,
                }
            });
            Err(SpecFileError(told.collect()))
        }
    }
}

/// An agent, with the script of its model.
fn read_agent(json: &[u8]) -> Result<AgentSpec, Vec<Violation>> {
    let spec = records::read_agent(json)?;
    match spec.model.script.as_deref().map(ScriptedModel::check) {
        Some(Err(error)) => Err(vec![Violation::new("/model/script", error.to_string())]),
        Some(Ok(())) | None => Ok(spec),
    }
}

/// The YAML files and the folders of skills.
fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), SpecFileError> {
    let failed = |error| SpecFileError::new(path, error);
    if !fs::metadata(path).map_err(failed)?.is_dir() {
        let folder = path.parent().filter(|_| path.ends_with(SKILL_FILE));
        // The parent of a bare file name is empty, which names no directory.
        let folder = folder.map(|folder| if folder.as_os_str().is_empty() { Path::new(".") } else { folder });
        files.push(folder.unwrap_or(path).to_owned());
        return Ok(());
    }
    if skill_folder::is_skill(path) {
        files.push(path.to_owned());
        return Ok(());
    }
    let mut entries: Vec<PathBuf> = fs::read_dir(path)
        .map_err(failed)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .map_err(failed)?;
    entries.sort();
    for entry in entries {
        let is_yaml = entry.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
        if is_yaml || entry.is_dir() {
            collect(&entry, files)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.yaml");
        fs::write(&path, text).unwrap();
        SpecFiles::read(&[dir.path().to_owned()]).sound().unwrap_err().to_string()
    }

    const AGENT: &str = "key: a\nname: A\nprompts:\n  conversation: hi\n";

    #[test]
    fn errors_name_file_line_and_key() {
        let error = refusal(&format!("{AGENT}modle: {{}}\n"));
        assert!(error.ends_with("a.yaml:5: /modle: unknown field; did you mean `model`?"), "{error}");
        let error = refusal(&format!("{AGENT}model:\n  script: '{{{{ nope'\n"));
        assert!(error.contains(":6: /model/script: "), "{error}");
        let latent = |tool: &str| refusal(&format!("{AGENT}latent_tools:\n  - name: {tool}\n    description: d\n"));
        let error = latent("submit_output");
        assert!(error.contains(":6: /latent_tools/0/name: is reserved"), "{error}");
        let error = latent("t\n    output: {type: thing}");
        assert!(error.contains(":7: /latent_tools/0/output: "), "{error}");
        let by_caller =
            |tool: &str| refusal(&format!("{AGENT}tools:\n  - name: {tool}\n    runs: caller\n    description: d\n"));
        let error = by_caller("mcp__a__b");
        assert!(error.contains(":6: /tools/0/name: is reserved"), "{error}");
        let error = by_caller("t\n    parameters: {type: object, required: 1}");
        assert!(error.contains(":7: /tools/0/parameters: "), "{error}");
        let error = refusal("key: d\nname: D\nagent_key: a\noutput_schema: {type: objekt}\n");
        assert!(error.contains(":4: /output_schema: "), "{error}");
        assert!(refusal("key: d\n").contains("neither an agent"));
    }

    #[test]
    fn platform_document_is_recognized_and_validated() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("p.yaml"), "kind: platform\nruntime_profile: online\n").unwrap();
        assert_eq!(SpecFiles::read(&[dir.path().to_owned()]).sound().unwrap().platforms.len(), 1);
        let error = refusal("kind: platform\nmanaged_models: [{id: m}, {id: m}]\n");
        assert!(error.contains(":2: /managed_models/1: `m` is written twice"), "{error}");
        assert!(refusal("kind: platform\nprovidres: []\n").contains("providres"));
    }

    #[test]
    fn one_key_is_written_once() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.yaml", "b.yml"] {
            fs::write(dir.path().join(name), AGENT).unwrap();
        }
        assert!(
            SpecFiles::read(&[dir.path().to_owned()])
                .sound()
                .unwrap_err()
                .to_string()
                .contains("b.yml:1: /key: `a` is also in")
        );
    }

    #[test]
    fn the_examples_of_the_repository_are_valid() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let agents = SpecFiles::read(&[root.join("agents")]).sound().unwrap().agents;
        let definitions = SpecFiles::read(&[root.join("definitions")]).sound().unwrap().definitions;
        for definition in &definitions {
            let has_agent = agents.iter().any(|agent| agent.spec.key == definition.spec.agent_key);
            assert!(has_agent, "{} names an agent that is not there", definition.path.display());
        }
        assert!(definitions.len() >= 3);
    }

    #[test]
    fn words_of_yaml_1_1_are_strings() {
        let text = "key: d\nagent_key: a\nname: D\nprompt: x\ninput_schema:\n  properties: {n: {type: integer}, on: {enum: [y, no, off]}}\n";
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("d.yaml"), text).unwrap();
        let read = SpecFiles::read(&[dir.path().to_owned()]).sound().unwrap();
        let expected = serde_json::json!({"n": {"type": "integer"}, "on": {"enum": ["y", "no", "off"]}});
        assert_eq!(read.definitions[0].spec.input_schema["properties"], expected);
        let error = refusal(&format!("{text}output_schema: {{$ref: '#/$defs/x'}}\n"));
        assert!(error.contains(":7: /output_schema"), "{error}");
    }

    #[test]
    fn every_mistake_of_every_file_is_told() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(
            dir.path().join("a.yaml"),
            "key: a\nname: A\nprompts:\n  conversation: |\n    hi\n    {{ inptu.x }}\nmodle: {}\n",
        )
        .unwrap();
        fs::write(dir.path().join("b.yaml"), "key: [\n").unwrap();
        fs::write(dir.path().join("c.yaml"), "key: c\nname: C\nagent_key: a\nmax_retries: many\n").unwrap();
        let told = SpecFiles::read(&[dir.path().to_owned()]).problems;
        let lines: Vec<_> =
            told.iter().map(|one| (one.file.file_name().unwrap().to_str().unwrap(), one.line)).collect();
        assert_eq!(lines, [("a.yaml", Some(7)), ("a.yaml", Some(6)), ("b.yaml", told[2].line), ("c.yaml", Some(4))]);
        assert!(told[2].line.is_some());
    }

    #[test]
    fn empty_directory_is_refused_only_when_asked_for() {
        let empty = tempfile::tempdir().unwrap();
        let paths = [empty.path().to_owned()];
        assert!(SpecFiles::read(&paths).problems[0].what.contains("no .yaml file"));
        assert!(SpecFiles::read_any(&paths).sound().unwrap().agents.is_empty());
    }
}
