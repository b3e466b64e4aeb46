//! Compares records with what exists elsewhere: agents and skills that are stored, and the names that live workers
//! know.

use std::{collections::BTreeSet, path::Path};

use longhaul_config::inherited_environment;
use longhaul_domain::{Offers, TenantId};
use longhaul_shared::nearest::nearest;
use longhaul_store::Store;

use crate::{
    client::{Client, ClientError},
    spec_file_error::SpecProblem,
    spec_files::{Document, Kind, SpecFiles},
};

/// Records and names outside the files, as far as the files need them.
#[derive(Debug, Default)]
pub struct Known {
    /// Keys of stored agents. `None` if they cannot be listed: the API decides when a definition is put.
    pub agents: Option<BTreeSet<String>>,
    /// Names of stored skills, likewise.
    pub skills: Option<BTreeSet<String>>,
    pub offers: Offers,
    /// True if workers run on this machine, so that the programs of tool servers are looked for here.
    pub is_local: bool,
}

/// Result of a comparison.
#[derive(Debug, Default)]
pub struct Found {
    /// Records that cannot be stored.
    pub wrong: Vec<SpecProblem>,
    /// Records that no live worker can run; another worker may start.
    pub doubtful: Vec<SpecProblem>,
}

impl Known {
    /// Asks the API. A list that the key may not read, or that an earlier release does not have, is left unknown.
    ///
    /// # Errors
    /// The API does not answer.
    pub async fn of_api(client: &Client, files: &SpecFiles) -> Result<Self, ClientError> {
        let listed = async |names: BTreeSet<&str>, path: &str, field: &str| -> Result<_, ClientError> {
            // Most files name only each other.
            if names.is_empty() {
                return Ok(None);
            }
            let Some(items) = unless_closed(client.all(path, &[("limit", "200")], "items").await)? else {
                return Ok(None);
            };
            Ok(Some(items.iter().filter_map(|item| Some(item[field].as_str()?.to_owned())).collect()))
        };
        let offers = unless_closed(client.get("/v1/fleet/offers").await)?;
        Ok(Self {
            agents: listed(missing_agents(files), "/v1/agents", "key").await?,
            skills: listed(missing_skills(files), "/v1/skills", "name").await?,
            offers: offers.and_then(|offers| serde_json::from_value(offers).ok()).unwrap_or_default(),
            is_local: is_loopback(client.url()),
        })
    }

    /// Asks the database.
    ///
    /// # Errors
    /// Postgres is unreachable.
    pub async fn of_store(store: &Store, owner: Option<TenantId>, files: &SpecFiles) -> anyhow::Result<Self> {
        let (mut agents, mut skills) = (BTreeSet::new(), BTreeSet::new());
        for key in missing_agents(files) {
            if store.resolve_agent(owner, key, None).await?.is_some() {
                agents.insert(key.to_owned());
            }
        }
        for name in missing_skills(files) {
            if store.resolve_skills(owner, &[name.to_owned()]).await?.is_ok() {
                skills.insert(name.to_owned());
            }
        }
        let offers = Offers::read(&store.offers().await?);
        Ok(Self { agents: Some(agents), skills: Some(skills), offers, is_local: false })
    }

    /// Compares every agent and definition, also those with mistakes.
    #[must_use]
    pub fn compare(&self, files: &SpecFiles) -> Found {
        let mut found = Found::default();
        let agents = with_stored(own_agents(files), self.agents.as_ref());
        let skills = with_stored(own_skills(files), self.skills.as_ref());
        let validators = names(&self.offers.validators);
        for document in &files.documents {
            for (pointer, name) in skills_of(document) {
                let missing = unknown(document, &pointer, "there is no skill", name, skills.as_ref());
                found.wrong.extend(missing);
            }
            if let Some(key) = agent_of(document) {
                found.wrong.extend(unknown(document, "/agent_key", "there is no agent", key, agents.as_ref()));
            }
            if document.kind == Kind::Agent {
                self.compare_agent(document, &mut found.doubtful);
            }
            for (pointer, name) in names_in(document, "validators").filter(|_| self.has_workers()) {
                let reason = "no live worker has the validator";
                found.doubtful.extend(unknown(document, &pointer, reason, name, Some(&validators)));
            }
        }
        found
    }

    /// False if no live worker says what it has.
    #[must_use]
    pub fn has_workers(&self) -> bool {
        !self.offers.is_unknown()
    }

    fn compare_agent(&self, agent: &Document, doubtful: &mut Vec<SpecProblem>) {
        let servers = agent.value["mcp_servers"].as_object();
        for (name, server) in servers.into_iter().flatten().filter(|_| self.is_local) {
            if let Some(program) = server["command"][0].as_str().filter(|program| !is_program(program)) {
                let what = format!("there is no program `{program}` on this machine");
                doubtful.push(agent.problem(&format!("/mcp_servers/{name}/command"), what));
            }
        }
        if !self.has_workers() {
            return;
        }
        let (tools, providers) = (names(&self.offers.tools), names(&self.offers.providers));
        for (pointer, name) in names_in(agent, "tools") {
            doubtful.extend(unknown(agent, &pointer, "no live worker has the tool", name, Some(&tools)));
        }
        let model = &agent.value["model"];
        let fallback = model["fallback"].as_array().into_iter().flatten().enumerate();
        let others = fallback.map(|(index, other)| (format!("/model/fallback/{index}"), other));
        for (pointer, route) in std::iter::once(("/model".to_owned(), model)).chain(others) {
            if let Some(provider) = route["provider"].as_str() {
                let (pointer, reason) = (format!("{pointer}/provider"), "no live worker has the provider");
                doubtful.extend(unknown(agent, &pointer, reason, provider, Some(&providers)));
            }
            let provider = route["provider"].as_str().or_else(|| model["provider"].as_str());
            let is_known = provider.is_none_or(|provider| providers.contains(provider));
            if let Some(name) = route["name"].as_str().filter(|name| is_known && !self.offers.has_model(provider, name))
            {
                let models = self.offers.models_of(provider).collect();
                let reason = "no live worker has a price or a limit of the model";
                doubtful.extend(unknown(agent, &format!("{pointer}/name"), reason, name, Some(&models)));
            }
        }
    }
}

/// The answer; `None` if the key may not read it, or the server does not have it.
fn unless_closed<T>(answer: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(ClientError::Problem(problem)) if matches!(problem.status(), 403 | 404) => Ok(None),
        Err(error) => Err(error),
    }
}

fn agent_of(document: &Document) -> Option<&str> {
    document.value["agent_key"].as_str().filter(|_| document.kind == Kind::Definition)
}

fn skills_of(document: &Document) -> impl Iterator<Item = (String, &str)> {
    names_in(document, "skills").filter(|_| document.kind == Kind::Agent)
}

fn own_agents(files: &SpecFiles) -> BTreeSet<&str> {
    let agents = files.documents.iter().filter(|document| document.kind == Kind::Agent);
    agents.filter_map(|agent| agent.value["key"].as_str()).collect()
}

fn own_skills(files: &SpecFiles) -> BTreeSet<&str> {
    files.skills.iter().map(|(_, skill)| skill.name.as_str()).collect()
}

/// Agents that definitions name and that are not in the files.
fn missing_agents(files: &SpecFiles) -> BTreeSet<&str> {
    let own = own_agents(files);
    files.documents.iter().filter_map(agent_of).filter(|key| !own.contains(key)).collect()
}

/// Skills that agents name and that are not in the files.
fn missing_skills(files: &SpecFiles) -> BTreeSet<&str> {
    let own = own_skills(files);
    files.documents.iter().flat_map(skills_of).map(|(_, name)| name).filter(|name| !own.contains(name)).collect()
}

/// The names in the files and the stored ones. `None` if the stored ones are unknown.
fn with_stored<'a>(own: BTreeSet<&'a str>, stored: Option<&'a BTreeSet<String>>) -> Option<BTreeSet<&'a str>> {
    Some(own.into_iter().chain(names(stored?)).collect())
}

fn names(of: &BTreeSet<String>) -> BTreeSet<&str> {
    of.iter().map(String::as_str).collect()
}

/// The names in a list, each a text or the `name` of an entry, with their pointers. Left out are the caller's tools.
fn names_in<'a>(document: &'a Document, list: &'a str) -> impl Iterator<Item = (String, &'a str)> {
    let entries = document.value[list].as_array().into_iter().flatten().enumerate();
    entries.filter(|(_, entry)| entry.get("runs").is_none()).filter_map(move |(index, entry)| {
        let pointer = format!("/{list}/{index}");
        entry
            .as_str()
            .map(|name| (pointer.clone(), name))
            .or_else(|| Some((pointer + "/name", entry["name"].as_str()?)))
    })
}

/// A problem, with the nearest name, unless `names` has the name or is unknown.
fn unknown(
    of: &Document,
    pointer: &str,
    reason: &str,
    name: &str,
    names: Option<&BTreeSet<&str>>,
) -> Option<SpecProblem> {
    let names = names.filter(|names| !names.contains(name))?;
    let meant =
        nearest(name, names.iter().copied()).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
    Some(of.problem(pointer, format!("{reason} `{name}`{meant}")))
}

/// True if a program can be started by this name here. `longhaul` stands for this program.
fn is_program(name: &str) -> bool {
    if name == "longhaul" || name.contains('/') {
        return name == "longhaul" || Path::new(name).exists();
    }
    let path = inherited_environment(&["PATH"]).remove("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

fn is_loopback(url: &str) -> bool {
    let host = reqwest::Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default();
    host == "localhost" || host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}
