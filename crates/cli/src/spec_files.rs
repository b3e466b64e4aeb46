//! Reads agents, definitions and platform documents from YAML files, and skills from folders.
//!
//! Everything that can be checked without a worker is checked before the first file is applied, with the rules of the
//! API (`longhaul_api::records`), and all mistakes are told with file and line. A file with `prompts` is an agent, one
//! with `agent_key` a definition, one with `kind: platform` a platform document. A folder with `SKILL.md` is a skill as
//! a whole.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use longhaul_api::{Violation, records};
use longhaul_contract::catalogue::PlatformSpec;
use longhaul_llm::scripted::ScriptedModel;
use longhaul_sdk::spec::{AgentSpec, DefinitionSpec, SKILL_FILE, SkillSpec};
use longhaul_shared::nearest::nearest;
use longhaul_store::catalogue::definitions::BUILT_IN_DEFINITIONS;
use serde_json::Value;

use crate::{
    located_yaml::{Lines, Located},
    skill_folder,
    spec_file_error::{SpecFileError, SpecProblem},
};

/// The reason why a file or folder is not read.
fn unread(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::NotFound {
        "there is no such file or folder here".into()
    } else if error.kind() == io::ErrorKind::InvalidData {
        "it is not text in UTF-8".into()
    } else {
        error.to_string()
    }
}

/// Kind of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Agent,
    Definition,
    Platform,
}

/// A YAML file as written, also with mistakes.
#[derive(Debug)]
pub struct Document {
    pub kind: Kind,
    pub value: Value,
    path: PathBuf,
    lines: Lines,
}

impl Document {
    /// A problem at a JSON pointer.
    #[must_use]
    pub fn problem(&self, pointer: &str, what: impl std::fmt::Display) -> SpecProblem {
        let what = if pointer.is_empty() { what.to_string() } else { format!("{pointer}: {what}") };
        SpecProblem { file: self.path.clone(), line: self.lines.of(pointer), what }
    }

    /// Reads the record with the rules of the API.
    fn record<S>(&self, read: impl Fn(&[u8]) -> Result<S, Vec<Violation>>) -> Result<(PathBuf, S), SpecFileError> {
        let told = |one: Violation| {
            let problem = self.problem(&one.path, &one.message);
            let Some(inner) = one.line else { return problem };
            // The message quotes the text at fault first.
            let mark = one.message.split('`').nth(1).and_then(|name| name.rsplit('.').next()).unwrap_or_default();
            SpecProblem { line: self.lines.within(&one.path, inner, mark), ..problem }
        };
        let read = read(self.value.to_string().as_bytes());
        read.map(|spec| (self.path.clone(), spec))
            .map_err(|violations| SpecFileError(violations.into_iter().map(told).collect()))
    }
}

/// The records read from files and directories, each with its file or folder.
#[derive(Debug, Default)]
pub struct SpecFiles {
    pub skills: Vec<(PathBuf, SkillSpec)>,
    pub agents: Vec<(PathBuf, AgentSpec)>,
    pub definitions: Vec<(PathBuf, DefinitionSpec)>,
    pub platforms: Vec<(PathBuf, PlatformSpec)>,
    /// Every YAML file, also those with mistakes.
    pub documents: Vec<Document>,
    /// Every mistake in every file.
    pub problems: Vec<SpecProblem>,
}

impl SpecFiles {
    /// Reads each file of `paths`, and every `*.yaml`, `*.yml` and skill below each directory in order of name.
    #[must_use]
    pub fn read(paths: &[PathBuf]) -> Self {
        let mut read = Self::default();
        for path in paths {
            match files_at(path) {
                Ok(files) if files.is_empty() => {
                    read.note(SpecFileError::new(path, "there is no .yaml file and no skill in it"));
                }
                files => read.add_all(files),
            }
        }
        read.find_doubles();
        read
    }

    /// As [`read`](Self::read), but a directory without files is no mistake.
    #[must_use]
    pub fn read_any(paths: &[PathBuf]) -> Self {
        let mut read = Self::default();
        paths.iter().for_each(|path| read.add_all(files_at(path)));
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
        for (_, agent) in &mut self.agents {
            for server in agent.mcp_servers.values_mut() {
                if let Some(first) = server.command.first_mut()
                    && first == "longhaul"
                {
                    *first = program.to_string_lossy().into_owned();
                }
            }
        }
    }

    fn note(&mut self, error: SpecFileError) {
        self.problems.extend(error.0);
    }

    fn add_all(&mut self, files: Result<Vec<PathBuf>, SpecFileError>) {
        match files {
            Ok(files) => {
                for file in files {
                    self.add(file).unwrap_or_else(|error| self.note(error));
                }
            }
            Err(error) => self.note(error),
        }
    }

    fn add(&mut self, path: PathBuf) -> Result<(), SpecFileError> {
        if path.is_dir() {
            let spec = skill_folder::read(&path)?;
            self.skills.push((path, spec));
            return Ok(());
        }
        let text = fs::read_to_string(&path).map_err(|error| SpecFileError::new(&path, unread(&error)))?;
        let Located { value, lines } =
            Located::read(&text).map_err(|(line, reason)| SpecFileError::at(&path, line, reason))?;
        let kind = match (value["kind"] == "platform", value.get("prompts"), value.get("agent_key")) {
            (true, _, _) => Kind::Platform,
            (false, Some(_), None) => Kind::Agent,
            (false, None, Some(_)) => Kind::Definition,
            (false, Some(_), Some(_)) => {
                let what = "`prompts` is of agents, `agent_key` of definitions";
                return Err(SpecFileError::at(&path, lines.of("/agent_key"), what));
            }
            (false, None, None) => {
                let mut what = "neither an agent (which has `prompts`) nor a definition (which has `agent_key`) nor \
                                `kind: platform`"
                    .to_owned();
                let fields = value.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
                for (field, meant) in fields.filter_map(|name| Some((name, nearest(name, ["prompts", "agent_key"])?))) {
                    what = format!("{what}; did you mean `{meant}` by `{field}`?");
                }
                return Err(SpecFileError::new(&path, what));
            }
        };
        let document = Document { kind, value, path, lines };
        let read = match kind {
            Kind::Platform => document.record(records::read_platform).map(|record| self.platforms.push(record)),
            Kind::Agent => document.record(read_agent).map(|record| self.agents.push(record)),
            Kind::Definition => document.record(read_definition).map(|record| self.definitions.push(record)),
        };
        self.documents.push(document);
        read
    }

    /// Finds keys that two files have.
    fn find_doubles(&mut self) {
        let mut seen = BTreeMap::new();
        for document in &self.documents {
            let Some(key) = document.value["key"].as_str() else { continue };
            if let Some(first) = seen.insert((document.kind, key), document) {
                let what = format!("`{key}` is also in {}", first.path.display());
                self.problems.push(document.problem("/key", what));
            }
        }
        let mut seen = BTreeMap::new();
        for (path, skill) in &self.skills {
            if let Some(first) = seen.insert(&skill.name, path) {
                let what = format!("skill `{}` is also in {}", skill.name, first.display());
                self.problems.extend(SpecFileError::new(path, what).0);
            }
        }
    }
}

/// An agent, with the script of its model.
fn read_agent(json: &[u8]) -> Result<AgentSpec, Vec<Violation>> {
    let written: Value = serde_json::from_slice(json).unwrap_or_default();
    let script = written["model"]["script"].as_str().map(ScriptedModel::check);
    let wrong = script.and_then(Result::err).map(|error| Violation::new("/model/script", error.to_string()));
    match (records::read_agent(json), wrong) {
        (Ok(spec), None) => Ok(spec),
        (read, wrong) => Err(read.err().into_iter().flatten().chain(wrong).collect()),
    }
}

/// A definition, whose key is not that of a built-in one.
fn read_definition(json: &[u8]) -> Result<DefinitionSpec, Vec<Violation>> {
    let spec = records::read_definition(json)?;
    if BUILT_IN_DEFINITIONS.contains(&spec.key.as_str()) {
        return Err(vec![Violation::new("/key", format!("`{}` is built in", spec.key))]);
    }
    Ok(spec)
}

/// The YAML files and the folders of skills at a path.
fn files_at(path: &Path) -> Result<Vec<PathBuf>, SpecFileError> {
    let mut files = Vec::new();
    collect(path, &mut files)?;
    Ok(files)
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), SpecFileError> {
    let failed = |error: io::Error| SpecFileError::new(path, unread(&error));
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
        assert!(refusal("key: d\n").contains("neither an agent") && refusal("- a\n").contains("neither an agent"));
        let error = refusal("key: agent\nname: D\nagent_key: a\n");
        assert!(error.contains(":1: /key: `agent` is built in"), "{error}");
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
        for (path, definition) in &definitions {
            let has_agent = agents.iter().any(|(_, agent)| agent.key == definition.agent_key);
            assert!(has_agent, "{} names an agent that is not there", path.display());
        }
        assert!(definitions.len() >= 3);
    }

    #[test]
    fn words_of_yaml_1_1_are_strings() {
        let text = "key: d\nagent_key: a\nname: D\nprompt: x\ninput_schema:\n  properties: {n: {type: integer}, on: \
            {enum: [y, no, off]}}\n";
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("d.yaml"), text).unwrap();
        let read = SpecFiles::read(&[dir.path().to_owned()]).sound().unwrap();
        let expected = serde_json::json!({"n": {"type": "integer"}, "on": {"enum": ["y", "no", "off"]}});
        assert_eq!(read.definitions[0].1.input_schema["properties"], expected);
        let error = refusal(&format!("{text}output_schema: {{$ref: '#/$defs/x'}}\n"));
        assert!(error.contains(":7: /output_schema"), "{error}");
    }

    #[test]
    fn every_mistake_of_every_file_is_told() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(
            dir.path().join("a.yaml"),
            "key: a\nname: A\nprompts:\n  conversation: |\n    hi\n    {{ inptu.x }}\nmodle: {}\nmodel: \
             {script: '{{ nope'}\n",
        )
        .unwrap();
        fs::write(dir.path().join("b.yaml"), "key: [\n").unwrap();
        fs::write(dir.path().join("c.yaml"), "key: c\nname: C\nagent_key: a\nmax_retries: many\n").unwrap();
        let told = SpecFiles::read(&[dir.path().to_owned()]).problems;
        let lines: Vec<_> =
            told.iter().map(|one| (one.file.file_name().unwrap().to_str().unwrap(), one.line)).collect();
        let of_a = [7, 6, 8].map(|line| ("a.yaml", Some(line)));
        assert_eq!(lines[..3], of_a);
        assert_eq!(lines[3..], [("b.yaml", told[3].line), ("c.yaml", Some(4))]);
        assert!(told[3].line.is_some());
    }

    #[test]
    fn empty_directory_is_refused_only_when_asked_for() {
        let empty = tempfile::tempdir().unwrap();
        let paths = [empty.path().to_owned()];
        assert!(SpecFiles::read(&paths).problems[0].what.contains("no .yaml file"));
        assert!(SpecFiles::read_any(&paths).sound().unwrap().agents.is_empty());
    }
}
