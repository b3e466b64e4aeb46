//! Compares records with what exists elsewhere: agents and skills that are stored, and the names that live workers
//! know.

use std::{collections::BTreeSet, path::Path};

use longhaul_shared::{
    config::inherited_environment,
    domain::{Offers, TenantId},
    nearest::nearest,
};
use longhaul_store::Store;
use serde_json::Value;

use crate::{
    client::{Client, ClientError},
    spec_file_error::SpecProblem,
    spec_files::{Kind, Source, SpecFiles},
};

/// What exists outside the files.
#[derive(Debug, Default)]
pub struct Known {
    /// Keys of stored agents.
    pub agents: BTreeSet<String>,
    /// Names of stored skills.
    pub skills: BTreeSet<String>,
    pub offers: Offers,
    /// True if workers run on this machine, so that the programs of tool servers are looked for here.
    pub is_local: bool,
}

/// What a comparison found.
#[derive(Debug, Default)]
pub struct Found {
    /// The record cannot be stored.
    pub wrong: Vec<SpecProblem>,
    /// No live worker could run the record, but another may start.
    pub doubtful: Vec<SpecProblem>,
}

impl Known {
    /// Asks the API.
    ///
    /// # Errors
    /// It does not answer, or the key may not read them.
    pub async fn of_api(client: &Client) -> Result<Self, ClientError> {
        let named = async |path: &str, field: &str| -> Result<BTreeSet<String>, ClientError> {
            let items = client.all(path, &[("limit", "200")], "items").await?;
            Ok(items.iter().filter_map(|item| Some(item[field].as_str()?.to_owned())).collect())
        };
        let offers = client.get("/v1/fleet/offers").await?;
        Ok(Self {
            agents: named("/v1/agents", "key").await?,
            skills: named("/v1/skills", "name").await?,
            offers: serde_json::from_value(offers).unwrap_or_default(),
            is_local: is_loopback(client.url()),
        })
    }

    /// Asks the database for what `files` name.
    ///
    /// # Errors
    /// Postgres is unreachable.
    pub async fn of_store(store: &Store, owner: Option<TenantId>, files: &SpecFiles) -> anyhow::Result<Self> {
        let mut known = Self { offers: Offers::read(&store.offers().await?), ..Self::default() };
        for (_, record) in &files.written {
            if let Some(key) = record.spec["agent_key"].as_str()
                && store.resolve_agent(owner, key, None).await?.is_some()
            {
                known.agents.insert(key.to_owned());
            }
            for (_, name) in names_in(&record.spec, "skills") {
                if store.resolve_skills(owner, &[name.to_owned()]).await?.is_ok() {
                    known.skills.insert(name.to_owned());
                }
            }
        }
        Ok(known)
    }

    /// Compares every agent and definition, also those with mistakes.
    #[must_use]
    pub fn compare(&self, files: &SpecFiles) -> Found {
        let mut found = Found::default();
        let written = |of: Kind| files.written.iter().filter(move |(kind, _)| *kind == of).map(|(_, one)| one);
        let own = written(Kind::Agent).filter_map(|agent| agent.spec["key"].as_str());
        let agents: BTreeSet<&str> = own.chain(self.agents.iter().map(String::as_str)).collect();
        let skills: BTreeSet<&str> =
            files.skills.iter().map(|skill| &skill.spec.name).chain(&self.skills).map(String::as_str).collect();
        for agent in written(Kind::Agent) {
            for (pointer, name) in names_in(&agent.spec, "skills") {
                found.wrong.extend(unknown(agent, &pointer, "there is no skill", name, &skills));
            }
            self.compare_agent(agent, &mut found.doubtful);
        }
        for definition in written(Kind::Definition) {
            if let Some(key) = definition.spec["agent_key"].as_str() {
                found.wrong.extend(unknown(definition, "/agent_key", "there is no agent", key, &agents));
            }
            let validators = names(&self.offers.validators);
            for (pointer, name) in names_in(&definition.spec, "validators").filter(|_| self.has_workers()) {
                let reason = "no live worker has the validator";
                found.doubtful.extend(unknown(definition, &pointer, reason, name, &validators));
            }
        }
        found
    }

    /// False if no live worker says what it has.
    #[must_use]
    pub fn has_workers(&self) -> bool {
        !self.offers.is_unknown()
    }

    fn compare_agent(&self, agent: &Source<Value>, doubtful: &mut Vec<SpecProblem>) {
        let servers = agent.spec["mcp_servers"].as_object();
        for (name, server) in servers.into_iter().flatten().filter(|_| self.is_local) {
            if let Some(program) = server["command"][0].as_str().filter(|program| !is_program(program)) {
                let what = format!("there is no program `{program}` on this machine");
                doubtful.push(agent.problem(&format!("/mcp_servers/{name}/command"), what));
            }
        }
        if !self.has_workers() {
            return;
        }
        let tools = names(&self.offers.tools);
        for (pointer, name) in names_in(&agent.spec, "tools") {
            doubtful.extend(unknown(agent, &pointer, "no live worker has the tool", name, &tools));
        }
        let model = &agent.spec["model"];
        let fallback = model["fallback"].as_array().into_iter().flatten().enumerate();
        let others = fallback.map(|(index, other)| (format!("/model/fallback/{index}"), other));
        for (pointer, route) in std::iter::once(("/model".to_owned(), model)).chain(others) {
            let provider = route["provider"].as_str();
            let providers = names(&self.offers.providers);
            let missing = provider.and_then(|provider| {
                unknown(agent, &format!("{pointer}/provider"), "no live worker has the provider", provider, &providers)
            });
            let is_missing = missing.is_some();
            doubtful.extend(missing);
            let provider = provider.or_else(|| model["provider"].as_str());
            let name = route["name"].as_str().filter(|name| !is_missing && !self.offers.has_model(provider, name));
            if let Some(name) = name.filter(|_| provider.is_none_or(|name| self.offers.providers.contains(name))) {
                let models = self.offers.models_of(provider).collect();
                let reason = "no live worker has a price or a limit of the model";
                doubtful.extend(unknown(agent, &format!("{pointer}/name"), reason, name, &models));
            }
        }
    }
}

fn names(of: &BTreeSet<String>) -> BTreeSet<&str> {
    of.iter().map(String::as_str).collect()
}

/// The names in a list, each a text or the `name` of an entry, with their pointers. Left out are the caller's tools.
fn names_in<'a>(record: &'a Value, list: &'a str) -> impl Iterator<Item = (String, &'a str)> {
    let entries = record[list].as_array().into_iter().flatten().enumerate();
    entries.filter(|(_, entry)| entry.get("runs").is_none()).filter_map(move |(index, entry)| {
        let pointer = format!("/{list}/{index}");
        entry
            .as_str()
            .map(|name| (pointer.clone(), name))
            .or_else(|| Some((pointer + "/name", entry["name"].as_str()?)))
    })
}

/// A problem, with the nearest name, unless `names` has the name.
fn unknown<S>(of: &Source<S>, pointer: &str, reason: &str, name: &str, names: &BTreeSet<&str>) -> Option<SpecProblem> {
    if names.contains(name) {
        return None;
    }
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
