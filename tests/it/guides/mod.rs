//! The guides: their links lead somewhere, their YAML and their commands are valid, and the first one runs as printed.

mod commands;
mod first_agent;
mod links;

use std::path::Path;

use longhaul_cli::spec_files::SpecFiles;

/// A fenced block of a Markdown text.
struct Block<'a> {
    /// The rest of the opening fence, such as `sh`.
    info: &'a str,
    text: &'a str,
}

impl Block<'_> {
    /// Name of the file that the block is the content of, if its first line is a comment with one.
    fn file(&self) -> Option<&str> {
        let name = self.text.lines().next()?.strip_prefix("# ")?;
        let is_name = name.contains('.') && name.chars().all(|c| c.is_ascii_alphanumeric() || "._/-".contains(c));
        is_name.then_some(name)
    }
}

/// The blocks whose fences begin a line, in order.
fn blocks(text: &str) -> Vec<Block<'_>> {
    let fenced = text.split("\n```").skip(1).step_by(2);
    fenced.map(|block| block.split_once('\n').unwrap()).map(|(info, text)| Block { info, text }).collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

#[test]
fn agents_and_definitions_of_guides_are_valid() {
    let guides = std::fs::read_dir(root().join("docs/guide")).unwrap().map(|entry| entry.unwrap().path());
    let dir = tempfile::tempdir().unwrap();
    let mut read = 0;
    for guide in guides.chain([root().join("README.md")]) {
        let text = std::fs::read_to_string(&guide).unwrap();
        // A block without a key shows a part of a file.
        let whole = |block: &&Block<'_>| block.info == "yaml" && block.text.contains("\nkey: ");
        for block in blocks(&text).iter().filter(whole) {
            let Some(name) = block.file() else { continue };
            let path = dir.path().join(name.replace('/', "-"));
            std::fs::write(&path, block.text).unwrap();
            let spec = SpecFiles::read(std::slice::from_ref(&path))
                .sound()
                .unwrap_or_else(|error| panic!("{name} of {}: {error}", guide.display()));
            assert_eq!(spec.agents.len() + spec.definitions.len(), 1, "{name} of {}", guide.display());
            read += 1;
        }
    }
    assert!(read > 8, "only {read} files found");
}
