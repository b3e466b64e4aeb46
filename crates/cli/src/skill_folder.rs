//! Reads a skill from its folder: `SKILL.md` with front matter, and further text files.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use longhaul_sdk::spec::{SKILL_FILE, SkillSpec};
use serde::Deserialize;

use crate::spec_file_error::SpecFileError;

/// Fields of the front matter that Longhaul reads. The format has others: `license`, `compatibility`, `metadata` and
/// `allowed-tools`.
#[derive(Debug, Deserialize)]
struct FrontMatter {
    name: String,
    description: String,
}

/// Returns true if `path` is the folder of a skill.
pub(crate) fn is_skill(path: &Path) -> bool {
    path.join(SKILL_FILE).is_file()
}

/// Reads the skill in `folder`. Hidden files are left out.
///
/// # Errors
/// `SKILL.md` has no valid front matter, the name differs from the folder's, a file is not UTF-8 text, or a limit of
/// skills is exceeded.
pub(crate) fn read(folder: &Path) -> Result<SkillSpec, SpecFileError> {
    let main = folder.join(SKILL_FILE);
    let text = text_of(&main)?;
    let (front, body) = split(&text).ok_or_else(|| {
        SpecFileError::new(&main, "it must begin with front matter: `---`, `name` and `description` in YAML, `---`")
    })?;
    let front: FrontMatter = serde_saphyr::from_str(front).map_err(|error| SpecFileError::new(&main, error))?;
    let is_own = fs::canonicalize(folder).is_ok_and(|folder| folder.ends_with(&front.name));
    if !is_own {
        return Err(SpecFileError::new(&main, format!("name: `{}` is not the name of its folder", front.name)));
    }
    let mut paths = Vec::new();
    collect(folder, &mut paths)?;
    paths.retain(|path| *path != main);
    let mut files = BTreeMap::new();
    for path in paths {
        let name = relative(folder, &path);
        files.insert(name, text_of(&path)?);
    }
    let skill = SkillSpec { name: front.name, description: front.description, body: body.to_owned(), files };
    match skill.problems().into_iter().next() {
        Some((place, reason)) => Err(SpecFileError::new(folder, format!("{place} {reason}"))),
        None => Ok(skill),
    }
}

/// The front matter and the text after it.
fn split(text: &str) -> Option<(&str, &str)> {
    let (front, body) = text.strip_prefix("---\n")?.split_once("\n---")?;
    Some((front, body.strip_prefix('\n').or_else(|| body.is_empty().then_some(""))?.trim_start_matches('\n')))
}

/// The files below `at`.
fn collect(at: &Path, paths: &mut Vec<PathBuf>) -> Result<(), SpecFileError> {
    let failed = |error| SpecFileError::new(at, error);
    for entry in fs::read_dir(at).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() {
            collect(&path, paths)?;
        } else if kind.is_symlink() {
            return Err(SpecFileError::new(&path, "a skill has no links"));
        } else {
            paths.push(path);
        }
        // One more: `SKILL.md` is among them.
        if paths.len() > SkillSpec::MAX_FILES + 1 {
            return Err(SpecFileError::new(at, format!("a skill has at most {} files", SkillSpec::MAX_FILES)));
        }
    }
    Ok(())
}

fn text_of(path: &Path) -> Result<String, SpecFileError> {
    let size = fs::metadata(path).map_err(|error| SpecFileError::new(path, error))?.len();
    if size > SkillSpec::MAX_BYTES as u64 {
        return Err(SpecFileError::new(path, format!("is larger than {} bytes", SkillSpec::MAX_BYTES)));
    }
    let bytes = fs::read(path).map_err(|error| SpecFileError::new(path, error))?;
    let text = String::from_utf8(bytes).map_err(|_| SpecFileError::new(path, "is not text in UTF-8"))?;
    Ok(text.trim_start_matches('\u{feff}').replace("\r\n", "\n"))
}

fn relative(folder: &Path, path: &Path) -> String {
    let below = path.strip_prefix(folder).unwrap_or(path);
    let parts: Vec<_> = below.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIN: &str =
        "---\nname: refunds\ndescription: Rules for refunds.\nlicense: MIT\n---\n\n# Refunds\n\n---\nEnd.\n";

    fn folder(files: &[(&str, &[u8])]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("refunds");
        for (path, bytes) in files {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        (dir, folder)
    }

    #[test]
    fn folder_is_read_with_its_files() {
        let crlf = MAIN.replace('\n', "\r\n");
        for main in [MAIN, &crlf, &format!("\u{feff}{MAIN}")] {
            let files = [(SKILL_FILE, main.as_bytes()), ("scripts/a.py", b"print(1)"), (".git/x", b"\xff")];
            let (_dir, folder) = folder(&files);
            let skill = read(&folder).unwrap();
            assert_eq!((skill.name.as_str(), skill.description.as_str()), ("refunds", "Rules for refunds."));
            assert_eq!(skill.body, "# Refunds\n\n---\nEnd.\n");
            assert_eq!(skill.files, [("scripts/a.py".to_owned(), "print(1)".to_owned())].into());
        }
    }

    #[test]
    fn defects_are_named_with_their_file() {
        let with = |from: &str, to: &str| MAIN.replace(from, to);
        for (main, expected) in [
            (with("---\nname", "name"), "SKILL.md: it must begin with front matter"),
            (with("name: refunds\n", ""), "name"),
            (with("name: refunds", "name: Refunds"), "name: `Refunds` is not"),
            (with("name: refunds", "name: other"), "name: `other` is not the name of its folder"),
            (with("Rules for refunds.", &"x".repeat(1_025)), "/description must be 1 to 1024"),
            (with("# Refunds\n\n---\nEnd.\n", ""), "/body is empty"),
        ] {
            let (_dir, folder) = folder(&[(SKILL_FILE, main.as_bytes())]);
            let error = read(&folder).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let (_dir, binary) = folder(&[(SKILL_FILE, MAIN.as_bytes()), ("logo.png", b"\x89PNG\xff")]);
        assert!(read(&binary).unwrap_err().to_string().contains("logo.png: is not text"));
        let many: Vec<String> = (0..=SkillSpec::MAX_FILES).map(|n| format!("f{n}")).collect();
        let files: Vec<(&str, &[u8])> = many.iter().map(|path| (path.as_str(), &b""[..])).collect();
        let (_dir, crowded) = folder(&[&files[..], &[(SKILL_FILE, MAIN.as_bytes())]].concat());
        assert!(read(&crowded).unwrap_err().to_string().contains("at most 100 files"));
        let (_dir, linked) = folder(&[(SKILL_FILE, MAIN.as_bytes())]);
        std::os::unix::fs::symlink("/etc/passwd", linked.join("data")).unwrap();
        assert!(read(&linked).unwrap_err().to_string().contains("a skill has no links"));
    }
}
