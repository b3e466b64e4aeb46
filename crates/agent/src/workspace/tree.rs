//! The files of a workspace, as a map from paths: the file tools work on it without a file system, so no path can lead
//! out of it.

use std::collections::BTreeMap;

use longhaul_store::files::{StoredWorkspace, WorkspaceEntry, WorkspaceNode};

/// Maximum bytes of all files together.
const MAX_BYTES: u64 = 256 << 20;
/// Maximum entries: files, links and empty directories.
const MAX_ENTRIES: usize = 10_000;
/// Maximum bytes of one file: that of a stored body.
pub(super) const MAX_FILE_BYTES: u64 = longhaul_config::FilesConfig::FILE_BYTES as u64;
/// Maximum bytes of a path, of the name of a file, and of the target of a link.
pub(super) const MAX_PATH: usize = 1_024;
const MAX_NAME: usize = 255;

/// A workspace at one version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tree {
    pub(super) version: i32,
    entries: BTreeMap<String, WorkspaceNode>,
    bytes: u64,
}

/// What a directory holds under one name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Listed<'a> {
    Directory,
    Node(&'a WorkspaceNode),
}

impl From<StoredWorkspace> for Tree {
    fn from(stored: StoredWorkspace) -> Self {
        let mut tree = Self { version: stored.version, ..Self::default() };
        for entry in stored.entries {
            tree.put(entry.path, entry.node);
        }
        tree
    }
}

impl Tree {
    /// A tree with these entries instead, at the same version.
    ///
    /// # Errors
    /// A text: a path is invalid or appears twice, or is below a file or link; a limit is exceeded.
    pub(super) fn with(&self, entries: Vec<WorkspaceEntry>) -> Result<Self, String> {
        let mut tree = Self { version: self.version, ..Self::default() };
        for WorkspaceEntry { path, node } in entries {
            let is_plain = normal(&path).is_ok_and(|normal| !normal.is_empty() && normal == path);
            let is_small = match &node {
                WorkspaceNode::File { bytes, .. } => *bytes <= MAX_FILE_BYTES,
                WorkspaceNode::Link { target } => target.len() <= MAX_PATH && !target.contains('\0'),
                WorkspaceNode::Directory => true,
            };
            if !is_plain || !is_small || tree.entries.contains_key(&path) {
                return Err(format!("the sandbox answered with an invalid entry `{path}`"));
            }
            tree.put(path, node);
        }
        if let Some(path) = tree.entries.keys().find(|path| tree.ancestor(path).is_some()) {
            return Err(format!("the sandbox answered with an invalid entry `{path}`"));
        }
        tree.within_limits()?;
        Ok(tree)
    }

    fn put(&mut self, path: String, node: WorkspaceNode) {
        self.bytes += size(&node);
        if let Some(old) = self.entries.insert(path, node) {
            self.bytes -= size(&old);
        }
    }

    fn within_limits(&self) -> Result<(), String> {
        if self.entries.len() > MAX_ENTRIES {
            return Err(format!("the workspace may have at most {MAX_ENTRIES} files"));
        }
        if self.bytes > MAX_BYTES {
            return Err(format!("the workspace may have at most {MAX_BYTES} bytes of files, not {}", self.bytes));
        }
        Ok(())
    }

    /// An entry above the path, and its path.
    fn ancestor(&self, path: &str) -> Option<(&str, &WorkspaceNode)> {
        let ends = path.match_indices('/').map(|(end, _)| end);
        ends.filter_map(|end| path.get(..end))
            .find_map(|above| self.entries.get_key_value(above).map(|(path, node)| (path.as_str(), node)))
    }

    /// The entries below the directory `path`; all of them for the empty path.
    fn below<'a>(&'a self, path: &str) -> impl Iterator<Item = (&'a str, &'a WorkspaceNode)> + use<'a> {
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        let from = self.entries.range(prefix.clone()..);
        from.map_while(move |(path, node)| Some((path.strip_prefix(&prefix)?, node)))
    }

    /// Hash and length of the file at `path`.
    ///
    /// # Errors
    /// A text: there is no file.
    pub(super) fn file(&self, path: &str) -> Result<(longhaul_store::files::BodyHash, u64, bool), String> {
        let path = self.reachable(path)?;
        match self.entries.get(&path) {
            Some(WorkspaceNode::File { hash, bytes, is_executable }) => Ok((*hash, *bytes, *is_executable)),
            Some(WorkspaceNode::Link { .. }) => Err(link(&path)),
            Some(WorkspaceNode::Directory) => Err(format!("`{path}` is a directory")),
            None if path.is_empty() || self.below(&path).next().is_some() => Err(format!("`{path}` is a directory")),
            None => Err(format!("there is no file `{path}` in the workspace")),
        }
    }

    /// The tree with another file at `path`, and the path in its normal form. A file that was executable remains so.
    ///
    /// # Errors
    /// A text: no file can be there, or a limit is exceeded.
    pub(super) fn with_file(
        &self,
        path: &str,
        hash: longhaul_store::files::BodyHash,
        bytes: u64,
    ) -> Result<(Self, String), String> {
        let path = self.writable(path)?;
        let is_executable = matches!(self.entries.get(&path), Some(WorkspaceNode::File { is_executable: true, .. }));
        let mut tree = self.clone();
        if let Some((above, WorkspaceNode::Directory)) = self.ancestor(&path) {
            tree.entries.remove(above);
        }
        tree.put(path.clone(), WorkspaceNode::File { hash, bytes, is_executable });
        tree.within_limits()?;
        Ok((tree, path))
    }

    /// The normal form of a path at which a file may be written.
    ///
    /// # Errors
    /// A text: the path is invalid, or something else is there.
    pub(super) fn writable(&self, path: &str) -> Result<String, String> {
        let path = self.reachable(path)?;
        match self.entries.get(&path) {
            Some(WorkspaceNode::Link { .. }) => Err(link(&path)),
            Some(WorkspaceNode::Directory) => Err(format!("`{path}` is a directory")),
            None if path.is_empty() || self.below(&path).next().is_some() => Err(format!("`{path}` is a directory")),
            Some(WorkspaceNode::File { .. }) | None => Ok(path),
        }
    }

    /// The names in the directory `path`, sorted.
    ///
    /// # Errors
    /// A text: there is no directory.
    pub(super) fn list(&self, path: &str) -> Result<BTreeMap<&str, Listed<'_>>, String> {
        let path = self.reachable(path)?;
        match self.entries.get(&path) {
            Some(WorkspaceNode::Link { .. }) => return Err(link(&path)),
            Some(WorkspaceNode::File { .. }) => return Err(format!("`{path}` is a file")),
            Some(WorkspaceNode::Directory) => return Ok(BTreeMap::new()),
            None => {}
        }
        let mut names = BTreeMap::new();
        for (rest, node) in self.below(&path) {
            match rest.split_once('/') {
                Some((name, _)) => names.insert(name, Listed::Directory),
                None if *node == WorkspaceNode::Directory => names.insert(rest, Listed::Directory),
                None => names.insert(rest, Listed::Node(node)),
            };
        }
        if names.is_empty() && !path.is_empty() {
            return Err(format!("there is no directory `{path}` in the workspace"));
        }
        Ok(names)
    }

    /// The normal form of a path that goes through no link and no file.
    fn reachable(&self, path: &str) -> Result<String, String> {
        let path = normal(path)?;
        match self.ancestor(&path) {
            Some((above, WorkspaceNode::Link { .. })) => Err(link(above)),
            Some((above, WorkspaceNode::File { .. })) => Err(format!("`{above}` is a file")),
            Some((_, WorkspaceNode::Directory)) | None => Ok(path),
        }
    }

    /// All entries, by path.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&str, &WorkspaceNode)> {
        self.entries.iter().map(|(path, node)| (path.as_str(), node))
    }

    /// The change from this tree to `next`: paths that end, and entries that begin.
    pub(super) fn change_to(&self, next: &Self) -> (Vec<String>, Vec<WorkspaceEntry>) {
        let ended = self.entries.iter().filter(|(path, node)| next.entries.get(*path) != Some(node));
        let added = next.entries.iter().filter(|(path, node)| self.entries.get(*path) != Some(node));
        let added = added.map(|(path, node)| WorkspaceEntry { path: path.clone(), node: node.clone() });
        (ended.map(|(path, _)| path.clone()).collect(), added.collect())
    }
}

fn size(node: &WorkspaceNode) -> u64 {
    match node {
        WorkspaceNode::File { bytes, .. } => *bytes,
        WorkspaceNode::Link { .. } | WorkspaceNode::Directory => 0,
    }
}

fn link(path: &str) -> String {
    format!("`{path}` is a symbolic link, which only `bash` follows")
}

/// The normal form of a path below the workspace; empty for the workspace itself.
fn normal(path: &str) -> Result<String, String> {
    let shown = longhaul_domain::cut(path, 256);
    if path.starts_with('/') {
        return Err(format!("`{shown}` is an absolute path; paths are relative to the workspace"));
    }
    if path.len() > MAX_PATH || path.contains('\0') {
        return Err(format!("a path has at most {MAX_PATH} bytes and no U+0000"));
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.contains(&"..") {
        return Err(format!("`{shown}` has `..`; paths name files below the workspace"));
    }
    if parts.iter().any(|part| part.len() > MAX_NAME) {
        return Err(format!("a name has at most {MAX_NAME} bytes"));
    }
    Ok(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: u64) -> WorkspaceNode {
        WorkspaceNode::File { hash: [1; 32], bytes, is_executable: false }
    }

    fn tree(entries: &[(&str, WorkspaceNode)]) -> Tree {
        let entries = entries.iter().map(|(path, node)| WorkspaceEntry { path: (*path).into(), node: node.clone() });
        Tree::default().with(entries.collect()).unwrap()
    }

    #[test]
    fn paths_out_of_the_workspace_are_refused() {
        let tree = tree(&[("a/b", file(1)), ("out", WorkspaceNode::Link { target: "/etc".into() })]);
        for path in ["/etc/passwd", "../x", "a/../../x", "a/..", "out/passwd", "out", "a/b/c", "a\0b", "//etc"] {
            assert!(tree.file(path).is_err(), "{path}");
            assert!(tree.with_file(path, [2; 32], 1).is_err(), "{path}");
        }
        assert!(tree.list("out").is_err() && tree.list("..").is_err() && tree.list("a/b").is_err());
        assert_eq!(tree.file("./a//b").unwrap(), ([1; 32], 1, false));
        assert!(tree.file(&"x".repeat(MAX_PATH + 1)).is_err() && tree.file(&"y".repeat(300)).is_err());
    }

    #[test]
    fn directory_lists_its_own_names() {
        let tree = tree(&[("a/b/c", file(1)), ("a/d", file(2)), ("a-b", file(3)), ("e", WorkspaceNode::Directory)]);
        let names = |path: &str| tree.list(path).unwrap().into_keys().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(
            (names(""), names("a"), names("e")),
            (vec!["a".into(), "a-b".into(), "e".into()], vec!["b".into(), "d".into()], vec![])
        );
        assert_eq!(tree.list("a").unwrap()["b"], Listed::Directory);
        assert!(tree.list("x").is_err());
    }

    #[test]
    fn file_replaces_an_empty_directory_above_it() {
        let tree = tree(&[("e", WorkspaceNode::Directory), ("f", file(1))]);
        let (next, path) = tree.with_file("e//new", [2; 32], 5).unwrap();
        assert_eq!((path.as_str(), next.bytes), ("e/new", 6));
        let (ended, added) = tree.change_to(&next);
        assert_eq!((ended, added.len()), (vec!["e".to_owned()], 1));
        let (again, _) = next.with_file("f", [2; 32], 7).unwrap();
        assert_eq!(again.bytes, 12);
    }

    #[test]
    fn entries_of_a_hostile_sandbox_are_refused() {
        let entry = |path: &str, node: WorkspaceNode| WorkspaceEntry { path: path.into(), node };
        let long = WorkspaceNode::Link { target: "x".repeat(MAX_PATH + 1) };
        for entries in [
            vec![entry("/a", file(1))],
            vec![entry("a/../b", file(1))],
            vec![entry("a//b", file(1))],
            vec![entry("", file(1))],
            vec![entry("a", file(1)), entry("a", file(2))],
            vec![entry("a", file(1)), entry("a/b", file(2))],
            vec![entry("a", long)],
            vec![entry("a", file(MAX_FILE_BYTES + 1))],
            (0..13).map(|n| entry(&n.to_string(), file(MAX_FILE_BYTES))).collect(),
            (0..=MAX_ENTRIES).map(|n| entry(&n.to_string(), file(0))).collect(),
        ] {
            assert!(Tree::default().with(entries).is_err());
        }
    }
}
