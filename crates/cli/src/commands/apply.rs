//! `longhaul apply`: applies agents, definitions and platform documents from YAML files, and skills from folders.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use longhaul_command::{Context, Exit, context::DATA_DIR, env_file, output};
use longhaul_domain::TenantId;
use longhaul_guards::agent_secrets;
use longhaul_guards::sealing::Sealer;
use longhaul_store::Store;
use reqwest::{Method, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    approval_rules::open_conditions,
    client::{Client, ClientError},
    compose,
    known_names::{Found, Known},
    spec_file_error::SpecProblem,
    spec_files::SpecFiles,
};

/// Apply agents, definitions and the platform from YAML files, and skills from folders
#[derive(Debug, clap::Args)]
#[command(after_help = "\
All files are read and checked before the first one is applied; what has not changed makes no new version. Skills go
first, then agents, so that agents find their skills and definitions their agent. A folder with SKILL.md is a skill.
Names of tools, validators, providers and models that no live worker knows are warnings, and so are approval rules with
a condition and no `ask` after it.
Without --direct, needs a key with the scope definitions:write, and admin for `kind: platform`.

Examples:
  longhaul apply -f definitions -f agents
  longhaul apply -f agents/invoice-clerk.yaml --shared
  longhaul apply -f definitions -f agents --check --strict
  DATABASE_URL=… longhaul apply -f . --direct")]
pub struct ApplyArgs {
    /// File or directory to apply; may be repeated
    #[arg(short, long = "file", required = true, value_name = "PATH")]
    files: Vec<PathBuf>,
    /// Apply for all tenants; needs the scope `admin`
    #[arg(long)]
    shared: bool,
    /// Write to the database of `DATABASE_URL` for all tenants, instead of through the API
    #[arg(long)]
    direct: bool,
    /// Refuse files with warnings
    #[arg(long)]
    strict: bool,
    /// Check the files and apply nothing
    #[arg(long)]
    check: bool,
}

/// The result of applying one record.
#[derive(Debug, Serialize)]
pub struct Applied {
    kind: &'static str,
    key: String,
    /// `None` for a platform document, which has no versions.
    version: Option<i64>,
    created: bool,
}

/// Reads and checks all files, then applies them.
///
/// # Errors
/// A file is invalid, the API refuses, or Postgres is unreachable.
pub async fn run(args: ApplyArgs, context: &Context) -> anyhow::Result<Exit> {
    let files = SpecFiles::read(&args.files);
    let applied = if args.direct {
        let config = context.load(Vec::new())?;
        let store = compose::store(&config, "longhaul-apply")?;
        let known = Ok(Known::of_store(&store, None, &files).await?);
        let files = check(files, &args, known)?;
        if args.check {
            return Ok(checked(&files, context));
        }
        directly(&store, None, &files, &Sealer::new(&config.contract.secret_keys()?)).await?
    } else {
        let client = Client::new(&context.load_for_client()?)?;
        let known = Known::of_api(&client, &files).await;
        let mut files = check(files, &args, known)?;
        if args.check {
            return Ok(checked(&files, context));
        }
        if is_development_server(client.url())
            && let Ok(own) = std::env::current_exe()
        {
            files.start_own_tools_with(&own);
        }
        through_api(&client, &files, args.shared).await?
    };
    print(&applied, context);
    Ok(Exit::Done)
}

/// Compares the files with stored records and the fleet, and prints the doubtful ones.
///
/// # Errors
/// A file has a mistake or, with `--strict`, a doubtful name. The API does not answer, and more than the files is to be
/// checked.
fn check(mut files: SpecFiles, args: &ApplyArgs, known: Result<Known, ClientError>) -> anyhow::Result<SpecFiles> {
    let warn =
        |problems: &[SpecProblem]| problems.iter().for_each(|problem| output::note(format!("warning: {problem}")));
    let open: Vec<_> = files.documents.iter().flat_map(open_conditions).collect();
    if args.strict {
        files.problems.extend(open);
    } else {
        warn(&open);
    }
    let known = match known {
        Ok(known) => known,
        // The mistakes in the files say more.
        Err(_) if !files.problems.is_empty() => return Ok(files.sound()?),
        Err(error) if args.check && !args.strict => {
            output::note(format!("warning: only the files were checked: {error}"));
            return Ok(files);
        }
        Err(error) => return Err(error.into()),
    };
    let Found { wrong, doubtful } = known.compare(&files);
    files.problems.extend(wrong);
    if args.strict {
        files.problems.extend(doubtful);
    } else {
        warn(&doubtful);
    }
    let files = files.sound()?;
    anyhow::ensure!(
        known.has_workers() || !args.strict,
        "names cannot be compared: no live worker lists its tools, validators and models, or the key may not ask"
    );
    Ok(files)
}

/// Says that the files have no mistakes.
fn checked(files: &SpecFiles, context: &Context) -> Exit {
    let counts = [
        ("skills", files.skills.len()),
        ("agents", files.agents.len()),
        ("definitions", files.definitions.len()),
        ("platforms", files.platforms.len()),
    ];
    if context.json {
        output::json(&json!({ "checked": BTreeMap::from(counts) }));
    } else {
        let told = counts.iter().filter(|(_, count)| *count > 0).map(|(kind, count)| format!("{count} {kind}"));
        output::line(format!("checked {}; nothing was applied", told.collect::<Vec<_>>().join(", ")));
    }
    Exit::Done
}

/// Returns true if `url` is the server of `longhaul dev` in this directory. That server replaces the command
/// `longhaul` of tool servers by its own program, so files applied to it later need the same.
fn is_development_server(url: &str) -> bool {
    let written = env_file::read(&Path::new(DATA_DIR).join(env_file::NAME));
    written.get("LONGHAUL_URL").is_some_and(|own| own == url)
}

/// Writes everything to the database, skills first, then agents. Without an owner, for all tenants.
///
/// # Errors
/// An agent's skill or a definition's agent does not exist, or Postgres is unreachable.
pub async fn directly(
    store: &Store,
    owner: Option<TenantId>,
    files: &SpecFiles,
    sealer: &Sealer,
) -> anyhow::Result<Vec<Applied>> {
    let mut applied = Vec::new();
    for (_, skill) in &files.skills {
        let put = store.put_skill(owner, skill).await?;
        let (version, created) = (Some(put.version.into()), put.created);
        applied.push(Applied { kind: "skill", key: skill.name.clone(), version, created });
    }
    for (path, agent) in &files.agents {
        let skills = match store.resolve_skills(owner, &agent.skills).await? {
            Ok(skills) => skills,
            Err(unknown) => anyhow::bail!("{}: skills: there is no skill `{unknown}`", path.display()),
        };
        let mut agent = agent.clone();
        if owner.is_none() {
            let known = store.resolve_agent(None, &agent.key, None).await?;
            agent_secrets::seal(&mut agent, known.as_ref().map(|known| &known.spec), sealer)?;
        }
        let put = store.put_pinned_agent(owner, &agent, &skills).await?;
        let (version, created) = (Some(put.version.into()), put.created);
        applied.push(Applied { kind: "agent", key: agent.key.clone(), version, created });
    }
    for (path, definition) in &files.definitions {
        if store.resolve_agent(owner, &definition.agent_key, None).await?.is_none() {
            anyhow::bail!("{}: agent_key: there is no agent `{}`", path.display(), definition.agent_key);
        }
        let put = store.put_definition(owner, definition).await?;
        let (version, created) = (Some(put.version.into()), put.created);
        applied.push(Applied { kind: "definition", key: definition.key.clone(), version, created });
    }
    for (path, platform) in &files.platforms {
        let sealed =
            platform.clone().sealed(|literal| sealer.seal(literal)).with_context(|| path.display().to_string())?;
        store.put_platform(&sealed).await.with_context(|| path.display().to_string())?;
        applied.push(of_platform(path));
    }
    Ok(applied)
}

fn of_platform(path: &Path) -> Applied {
    Applied { kind: "platform", key: path.display().to_string(), version: None, created: true }
}

async fn through_api(client: &Client, files: &SpecFiles, shared: bool) -> anyhow::Result<Vec<Applied>> {
    let mut applied = Vec::new();
    for (path, skill) in &files.skills {
        let spec = serde_json::to_value(skill)?;
        let put = put(client, "skill", &skill.name, &spec, shared).await;
        applied.push(put.map_err(|error| error.context(path.display().to_string()))?);
    }
    for (path, agent) in &files.agents {
        let spec = serde_json::to_value(agent)?;
        applied.push(
            put(client, "agent", &agent.key, &spec, shared).await.map_err(|e| e.context(path.display().to_string()))?,
        );
    }
    for (path, definition) in &files.definitions {
        let spec = serde_json::to_value(definition)?;
        let put = put(client, "definition", &definition.key, &spec, shared).await;
        applied.push(put.map_err(|error| error.context(path.display().to_string()))?);
    }
    for (path, platform) in &files.platforms {
        let request = client.request(Method::PUT, "/v1/platform").json(platform);
        client.send(request).await.map_err(|error| anyhow::Error::from(error).context(path.display().to_string()))?;
        applied.push(of_platform(path));
    }
    Ok(applied)
}

async fn put(client: &Client, kind: &'static str, key: &str, spec: &Value, shared: bool) -> anyhow::Result<Applied> {
    let request = client.request(Method::PUT, &format!("/v1/{kind}s/{key}")).query(&[("shared", shared)]).json(spec);
    let answer = client.send(request).await?;
    let version = answer.body["version"].as_i64().unwrap_or_default();
    Ok(Applied { kind, key: key.to_owned(), version: Some(version), created: answer.status == StatusCode::CREATED })
}

/// Prints the applied records.
pub fn print(applied: &[Applied], context: &Context) {
    if context.json {
        return output::json(&json!({ "applied": applied }));
    }
    for Applied { kind, key, version, created } in applied {
        match version {
            Some(version) => {
                let what = if *created { "new" } else { "unchanged" };
                output::line(format!("{kind} {key}: version {version} ({what})"));
            }
            None => output::line(format!("{kind} {key}: put")),
        }
    }
}
