//! Runs `docs/guide/first-agent.md` as its reader does.
//!
//! A block `sh server` is typed into a first terminal and keeps running. All others belong to a second one, in order:
//! `sh` is typed, a block whose first line is a comment with a file's name becomes that file, and `text` is the output
//! of the `sh` before it, in which `…` stands for any characters. The first command that fails ends the test.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::Stdio,
    time::Duration,
};

use regex::Regex;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use super::{Block, blocks};
use crate::support::wait::{eventually, within};

const GUIDE: &str = include_str!("../../../docs/guide/first-agent.md");
/// The program; see `tests/Cargo.toml`.
const PROGRAM: &str = env!("CARGO_BIN_EXE_longhaul-program");
/// Line after the output of each block.
const END: &str = "--- end of block ---";
/// Time for the server's start, for all commands together, and for the server's end.
const PATIENCE: Duration = Duration::from_secs(180);

/// A shell without the settings of the test's own environment, which finds the program as `longhaul`.
fn shell(dir: &Path, script: &str) -> Command {
    let mut shell = Command::new("sh");
    // Without PATH the shell has its default one.
    shell.args(["-euc", &format!("export PATH=\"$BIN:$PATH\"\n{script}")]).current_dir(dir).env_clear();
    shell.env("BIN", dir.join("bin")).env("HOME", dir).stdin(Stdio::null()).kill_on_drop(true);
    shell
}

/// Types the blocks of the first terminal, and waits until the server has written its address and keys.
async fn start(dir: &Path, blocks: &[Block<'_>]) -> Child {
    let typed: String = blocks.iter().filter(|block| block.info == "sh server").map(|block| block.text).collect();
    // On a free port, and in place of the shell, so that signals reach it.
    let typed = typed.replace("longhaul dev", "exec longhaul dev --listen 127.0.0.1:0");
    let log = dir.join("server.log");
    let mut server = shell(dir, &typed)
        .stdout(File::create(&log).unwrap())
        .stderr(File::create(dir.join("server.err")).unwrap())
        .spawn()
        .unwrap();
    let said = || ["server.log", "server.err"].map(|name| fs::read_to_string(dir.join(name)).unwrap()).concat();
    eventually("the server runs", PATIENCE, async || {
        assert!(server.try_wait().unwrap().is_none(), "the server ended: {}", said());
        if dir.join("first-agent/.longhaul/env").exists() { Ok(()) } else { Err(said()) }
    })
    .await;
    server
}

/// The second terminal as one script, which ends the output of each `sh` with a line.
fn script(blocks: &[Block<'_>]) -> String {
    let mut script = "exec 2>&1\n".to_owned();
    for block in blocks {
        let text = block.text;
        match (block.info, block.file()) {
            ("sh", _) => script += &format!("{text}\nprintf '\\n%s\\n' '{END}'\n"),
            ("sh server" | "text" | "py", _) => {}
            (_, Some(file)) => {
                script +=
                    &format!("mkdir -p \"$(dirname {file})\"\ncat >{file} <<'END_OF_FILE'\n{text}\nEND_OF_FILE\n");
            }
            (info, None) => panic!("a block of `{info}` is neither a command nor a file"),
        }
    }
    script
}

/// Lines that are not empty, with single spaces.
fn lines(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.filter(|line| !line.is_empty()).collect()
}

/// Fails if the output is not the printed one.
fn compare(typed: &str, expected: &str, output: &str) {
    let (expected, output) = (lines(expected), lines(output));
    let fits = |(expected, line): (&String, &String)| {
        Regex::new(&format!("^{}$", regex::escape(expected).replace('…', ".*"))).unwrap().is_match(line)
    };
    let is_same = expected.len() == output.len() && expected.iter().zip(&output).all(fits);
    assert!(is_same, "`{typed}` printed\n{}\n\nbut the guide says\n{}", output.join("\n"), expected.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_agent_guide_runs_as_printed() {
    let dir = tempfile::tempdir().unwrap();
    // Servers that root starts run as another user.
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(dir.path().join("bin")).unwrap();
    symlink(PROGRAM, dir.path().join("bin/longhaul")).unwrap();
    let blocks = blocks(GUIDE);
    let mut server = start(dir.path(), &blocks).await;

    let typed = within("all commands end", PATIENCE, shell(dir.path(), &script(&blocks)).output()).await.unwrap();
    let printed = String::from_utf8(typed.stdout).unwrap();
    assert!(typed.status.success(), "{}, after printing\n{printed}", typed.status);
    let mut outputs = printed.split(END);
    let (mut commands, mut compared, mut last) = (0, 0, ("", ""));
    for block in &blocks {
        match block.info {
            "sh" => (commands, last) = (commands + 1, (block.text, outputs.next().unwrap())),
            "text" => {
                compare(last.0, block.text, last.1);
                compared += 1;
            }
            _ => {}
        }
    }
    assert!(commands >= 9 && compared >= 8, "{commands} blocks of commands, {compared} outputs");

    let pid = Pid::from_raw(i32::try_from(server.id().unwrap()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let ended = within("the server ends", PATIENCE, server.wait()).await.unwrap();
    assert!(ended.success(), "{ended}");
}

#[test]
fn outputs_are_compared_by_words_and_gaps() {
    compare("x", "a …  c\n", "a b b c\n\n");
    for (expected, output) in [("a", "b"), ("a\nb", "a"), ("a …", "b a c"), ("a.c", "abc")] {
        assert!(std::panic::catch_unwind(|| compare("x", expected, output)).is_err(), "{expected:?} {output:?}");
    }
}
