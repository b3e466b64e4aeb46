//! Reads agents, definitions and platform documents from YAML files, and skills from folders. Errors name file, line
//! and key.
//!
//! Everything that can be checked without a worker is checked before the first file is applied: unknown keys, schemas
//! that do not compile, scripts that do not parse. A file with `prompts` is an agent, one with `agent_key` a
//! definition, one with `kind: platform` a platform document. A folder with `SKILL.md` is a skill as a whole.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use longhaul_contract::catalogue::PlatformSpec;
use longhaul_llm::scripted::ScriptedModel;
use longhaul_sdk::spec::{AgentSpec, DefinitionSpec, SKILL_FILE, SkillSpec, ToolRef};
use longhaul_shared::json_schema::{Patterns, Schema};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{skill_folder, spec_file_error::SpecFileError};

/// The records read from a file or a directory.
#[derive(Debug, Default)]
pub struct SpecFiles {
    /// Skills with their folders.
    pub skills: Vec<(PathBuf, SkillSpec)>,
    /// Agents with their source files.
    pub agents: Vec<(PathBuf, AgentSpec)>,
    /// Definitions with their source files.
    pub definitions: Vec<(PathBuf, DefinitionSpec)>,
    /// Platform documents with their source files.
    pub platforms: Vec<(PathBuf, PlatformSpec)>,
}

impl SpecFiles {
    /// Reads a file, or every `*.yaml`, `*.yml` and skill below a directory in order of name.
    ///
    /// # Errors
    /// The first error of the first invalid file.
    pub fn read(path: &Path) -> Result<Self, SpecFileError> {
        let read = Self::read_any(path)?;
        if read.is_empty() {
            return Err(SpecFileError::new(path, "there is no .yaml file and no skill in it"));
        }
        Ok(read)
    }

    /// As [`read`](Self::read), but a directory without files is no error.
    ///
    /// # Errors
    /// The first error of the first invalid file.
    pub fn read_any(path: &Path) -> Result<Self, SpecFileError> {
        let mut files = Vec::new();
        collect(path, &mut files)?;
        let mut read = Self::default();
        for file in files {
            read.add(&file)?;
        }
        read.refuse_doubles()?;
        Ok(read)
    }

    /// Adds the records of `other`.
    pub fn extend(&mut self, other: Self) {
        self.skills.extend(other.skills);
        self.agents.extend(other.agents);
        self.definitions.extend(other.definitions);
        self.platforms.extend(other.platforms);
    }

    /// Returns true if no record was read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.skills.is_empty() && self.agents.is_empty() && self.definitions.is_empty() && self.platforms.is_empty()
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

    fn add(&mut self, path: &Path) -> Result<(), SpecFileError> {
        if path.is_dir() {
            self.skills.push((path.to_owned(), skill_folder::read(path)?));
            return Ok(());
        }
        let text = fs::read_to_string(path).map_err(|error| SpecFileError::new(path, error))?;
        let fields: BTreeMap<String, Value> = parse(path, &text)?;
        if fields.get("kind").and_then(Value::as_str) == Some("platform") {
            self.platforms.push((path.to_owned(), platform(path, &text)?));
            return Ok(());
        }
        match (fields.contains_key("prompts"), fields.contains_key("agent_key")) {
            (true, false) => self.agents.push((path.to_owned(), agent(path, &text)?)),
            (false, true) => self.definitions.push((path.to_owned(), definition(path, &text)?)),
            (true, true) => return Err(SpecFileError::new(path, "`prompts` is of agents, `agent_key` of definitions")),
            (false, false) => {
                let what = "neither an agent (which has `prompts`) nor a definition (which has `agent_key`) nor `kind: platform`";
                return Err(SpecFileError::new(path, what));
            }
        }
        Ok(())
    }

    fn refuse_doubles(&self) -> Result<(), SpecFileError> {
        let agents = self.agents.iter().map(|(path, agent)| (path, "agent", &agent.key));
        let definitions = self.definitions.iter().map(|(path, definition)| (path, "definition", &definition.key));
        let skills = self.skills.iter().map(|(path, skill)| (path, "skill", &skill.name));
        let mut seen = BTreeMap::new();
        for (path, kind, key) in agents.chain(definitions).chain(skills) {
            if let Some(first) = seen.insert((kind, key), path) {
                let what = format!("{kind} `{key}` is also in {}", first.display());
                return Err(SpecFileError::new(path, what));
            }
        }
        Ok(())
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

fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, SpecFileError> {
    // YAML 1.2: only `true` and `false` are booleans; `n`, `y`, `no` and `on` are strings.
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| SpecFileError::new(path, error))
}

fn agent(path: &Path, text: &str) -> Result<AgentSpec, SpecFileError> {
    let spec: AgentSpec = parse(path, text)?;
    if let Some(script) = &spec.model.script {
        ScriptedModel::check(script)
            .map_err(|error| SpecFileError::new(path, format!("model.script{}: {error}", at(text, "script:"))))?;
    }
    for (name, server) in &spec.mcp_servers {
        if server.command.is_empty() == server.url.is_none() {
            let what =
                format!("mcp_servers.{name}{}: exactly one of `command` and `url`", at(text, &format!("{name}:")));
            return Err(SpecFileError::new(path, what));
        }
    }
    for tool in spec.tools.iter().filter_map(ToolRef::caller) {
        let line = at(text, &format!("- name: {}", tool.name));
        let refused = |field: &str, reason: &dyn std::fmt::Display| {
            SpecFileError::new(path, format!("tools{line}: {field}: {reason}"))
        };
        if let Some((field, reason)) = tool.problem() {
            return Err(refused(field, &reason));
        }
        for (field, schema) in tool.schemas() {
            Schema::compile(schema, Patterns::Linear).map_err(|error| refused(field, &error))?;
        }
    }
    for tool in &spec.latent_tools {
        let line = at(text, &format!("- name: {}", tool.name));
        let refused = |field: &str, reason: &dyn std::fmt::Display| {
            SpecFileError::new(path, format!("latent_tools{line}: {field}: {reason}"))
        };
        if let Some((field, reason)) = tool.problem() {
            return Err(refused(field, &reason));
        }
        for (field, schema) in [("parameters", &tool.parameters), ("output", &tool.output)] {
            Schema::compile(schema, Patterns::Linear).map_err(|error| refused(field, &error))?;
        }
    }
    Ok(spec)
}

fn definition(path: &Path, text: &str) -> Result<DefinitionSpec, SpecFileError> {
    let spec: DefinitionSpec = parse(path, text)?;
    let schemas = [("input_schema", Some(&spec.input_schema)), ("output_schema", spec.output_schema.as_ref())];
    for (key, schema) in schemas {
        if let Some(Err(error)) = schema.map(|schema| Schema::compile(schema, Patterns::Linear)) {
            let what = format!("{key}{}: not a JSON Schema: {error}", at(text, &format!("{key}:")));
            return Err(SpecFileError::new(path, what));
        }
    }
    Ok(spec)
}

fn platform(path: &Path, text: &str) -> Result<PlatformSpec, SpecFileError> {
    let spec: PlatformSpec = parse(path, text)?;
    match spec.problems().into_iter().next() {
        Some((at, reason)) => Err(SpecFileError::new(path, format!("{at}: {reason}"))),
        None => Ok(spec),
    }
}

/// ` (line 12)`: the first line that starts with `key`, for errors found after parsing.
fn at(text: &str, key: &str) -> String {
    let line = text.lines().position(|line| line.trim_start().starts_with(key));
    line.map_or_else(String::new, |line| format!(" (line {})", line + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.yaml");
        fs::write(&path, text).unwrap();
        SpecFiles::read(dir.path()).unwrap_err().to_string()
    }

    const AGENT: &str = "key: a\nname: A\nprompts:\n  conversation: hi\n";

    #[test]
    fn errors_name_file_line_and_key() {
        let error = refusal(&format!("{AGENT}modle: {{}}\n"));
        assert!(error.contains("a.yaml") && error.contains("modle") && error.contains('5'), "{error}");
        let error = refusal(&format!("{AGENT}model:\n  script: '{{{{ nope'\n"));
        assert!(error.contains("model.script (line 6)"), "{error}");
        let latent = |tool: &str| refusal(&format!("{AGENT}latent_tools:\n  - name: {tool}\n    description: d\n"));
        let error = latent("submit_output");
        assert!(error.contains("latent_tools (line 6): name: is reserved"), "{error}");
        let error = latent("t\n    output: {type: thing}");
        assert!(error.contains("latent_tools (line 6): output: "), "{error}");
        let by_caller =
            |tool: &str| refusal(&format!("{AGENT}tools:\n  - name: {tool}\n    runs: caller\n    description: d\n"));
        let error = by_caller("mcp__a__b");
        assert!(error.contains("tools (line 6): name: is reserved"), "{error}");
        let error = by_caller("t\n    parameters: {type: object, required: 1}");
        assert!(error.contains("tools (line 6): parameters: "), "{error}");
        let error = refusal("key: d\nname: D\nagent_key: a\noutput_schema: {type: objekt}\n");
        assert!(error.contains("output_schema (line 4): not a JSON Schema"), "{error}");
        assert!(refusal("key: d\n").contains("neither an agent"));
    }

    #[test]
    fn platform_document_is_recognized_and_validated() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("p.yaml"), "kind: platform\nruntime_profile: online\n").unwrap();
        assert_eq!(SpecFiles::read(dir.path()).unwrap().platforms.len(), 1);
        let error = refusal("kind: platform\nmanaged_models: [{id: m}, {id: m}]\n");
        assert!(error.contains("/managed_models/1: `m` is written twice"), "{error}");
        assert!(refusal("kind: platform\nprovidres: []\n").contains("providres"));
    }

    #[test]
    fn one_key_is_written_once() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.yaml", "b.yml"] {
            fs::write(dir.path().join(name), AGENT).unwrap();
        }
        assert!(SpecFiles::read(dir.path()).unwrap_err().to_string().contains("agent `a` is also in"));
    }

    #[test]
    fn the_examples_of_the_repository_are_valid() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let agents = SpecFiles::read(&root.join("agents")).unwrap().agents;
        let definitions = SpecFiles::read(&root.join("definitions")).unwrap().definitions;
        for (path, definition) in &definitions {
            let has_agent = agents.iter().any(|(_, agent)| agent.key == definition.agent_key);
            assert!(has_agent, "{} names an agent that is not there", path.display());
        }
        assert!(definitions.len() >= 3);
    }

    #[test]
    fn words_of_yaml_1_1_are_strings() {
        let text = "key: d\nagent_key: a\nname: D\nprompt: x\ninput_schema:\n  properties: {n: {type: integer}, on: {enum: [y, no, off]}}\n";
        let spec = definition(Path::new("d.yaml"), text).unwrap();
        let expected = serde_json::json!({"n": {"type": "integer"}, "on": {"enum": ["y", "no", "off"]}});
        assert_eq!(spec.input_schema["properties"], expected);
        let error =
            definition(Path::new("d.yaml"), &format!("{text}output_schema: {{$ref: '#/$defs/x'}}\n")).unwrap_err();
        assert!(error.to_string().contains("output_schema (line 7)"), "{error}");
    }

    #[test]
    fn empty_directory_is_refused_only_when_asked_for() {
        let empty = tempfile::tempdir().unwrap();
        assert!(SpecFiles::read(empty.path()).unwrap_err().to_string().contains("no .yaml file"));
        assert!(SpecFiles::read_any(empty.path()).unwrap().agents.is_empty());
    }
}
