//! Embeds the database functions of `migrations/functions` in dependency order. A function is applied after the
//! functions that its text names, because PostgreSQL checks each body when it creates the function.

use std::{collections::BTreeMap, env, fmt::Write, fs, io, path::Path};

#[expect(clippy::disallowed_methods, reason = "cargo tells a build script by its environment")]
fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=../../migrations");
    let folder =
        Path::new(&env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?).join("../../migrations/functions");
    let mut waiting = BTreeMap::new();
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        if let Some(name) = path.file_stem().and_then(|name| name.to_str()) {
            waiting.insert(name.to_owned(), fs::read_to_string(&path)?);
        }
    }
    let mut list = String::from("&[\n");
    while !waiting.is_empty() {
        let ready =
            waiting.iter().find(|(name, text)| !names_another(text, name, &waiting)).map(|(name, _)| name.clone());
        let Some(name) = ready else {
            return Err(io::Error::other(format!("functions that name each other: {:?}", waiting.keys())));
        };
        waiting.remove(&name);
        // Below the crate as it is when it is compiled: a moved checkout keeps the result of this script.
        let path = format!("concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/../../migrations/functions/{name}.sql\")");
        writeln!(list, "({name:?}, include_str!({path})),").map_err(io::Error::other)?;
    }
    list.push(']');
    let out = env::var("OUT_DIR").map_err(io::Error::other)?;
    fs::write(Path::new(&out).join("functions.rs"), list)
}

/// Returns true if the code of function `own` names another function in `waiting`.
fn names_another(text: &str, own: &str, waiting: &BTreeMap<String, String>) -> bool {
    let code = text.lines().map(|line| line.split("--").next().unwrap_or_default());
    code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'))
        .any(|word| word != own && waiting.contains_key(word))
}
