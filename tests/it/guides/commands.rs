//! Commands shown in documents have the subcommands and flags that they are shown with.

use std::{
    fs,
    process::{Command, Stdio},
};

use regex::Regex;

use super::{blocks, root};

/// The program; see `tests/Cargo.toml`.
const PROGRAM: &str = env!("CARGO_BIN_EXE_longhaul-program");
/// Words between the commands of a line.
const SEPARATORS: [&str; 5] = ["&&", "||", "|", "&", ";"];

/// True if a command begins behind this word: a separator, an assignment, or the `--` of `kubectl exec`.
fn ends_a_command(word: &str) -> bool {
    SEPARATORS.contains(&word) || word == "--" || word.ends_with([';', ')']) || word.contains('=')
}

/// The arguments of a command, without redirections and comments.
fn arguments(words: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for word in words {
        // Behind `--` is another program.
        if SEPARATORS.contains(word) || *word == "--" || word.starts_with(['#', '>']) {
            break;
        }
        let argument = word.trim_end_matches(')');
        if !argument.is_empty() {
            found.push(argument.trim_matches(['\'', '"']).to_owned());
        }
        if argument.len() < word.len() {
            break;
        }
    }
    found
}

/// Arguments of each `longhaul` in a line of shell.
fn commands(line: &str) -> Vec<Vec<String>> {
    let word = Regex::new(r#"'[^']*'|"[^"]*"|[^\s'"]+"#).unwrap();
    let words: Vec<&str> = word.find_iter(line).map(|word| word.as_str()).collect();
    let begins = |&at: &usize| {
        let is_first = at == 0 || ends_a_command(words[at - 1]);
        (words[at] == "longhaul" && is_first) || words[at].ends_with("(longhaul")
    };
    (0..words.len()).filter(begins).map(|at| arguments(&words[at + 1..])).collect()
}

#[test]
fn commands_of_documents_have_known_flags() {
    let folders = ["docs/guide", "docs/reference"].map(|folder| fs::read_dir(root().join(folder)).unwrap());
    let documents = folders.into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut seen = 0;
    for document in documents.chain([root().join("README.md")]) {
        let text = fs::read_to_string(&document).unwrap();
        let blocks = blocks(&text);
        let shell: Vec<&str> =
            blocks.iter().filter(|block| block.info.starts_with("sh")).map(|block| block.text).collect();
        for command in shell.join("\n").replace("\\\n", " ").lines().flat_map(commands) {
            seen += 1;
            // Flags before `--help` are read, values are not.
            let ran = Command::new(PROGRAM).args(&command).arg("--help").stdin(Stdio::null()).output().unwrap();
            let error = String::from_utf8_lossy(&ran.stderr);
            assert!(ran.status.success(), "{}: longhaul {}: {error}", document.display(), command.join(" "));
        }
    }
    assert!(seen > 50, "only {seen} commands found");
}

#[test]
fn commands_are_found_in_lines_of_shell() {
    let line = "A=$(longhaul keys list --org 'a b') longhaul get X | jq . && helm install longhaul . # longhaul no";
    assert_eq!(commands(line), [vec!["keys", "list", "--org", "a b"], vec!["get", "X"]]);
    assert_eq!(commands("kubectl exec api -- longhaul migrate >log"), [["migrate"]]);
    assert_eq!(commands("longhaul run --key k -- python agent.py"), [["run", "--key", "k"]]);
    assert_eq!(commands("docker build -t longhaul ."), Vec::<Vec<String>>::new());
}
