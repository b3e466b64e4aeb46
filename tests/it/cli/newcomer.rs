//! The first minute of a newcomer: tests/newcomer/first_agent.sh with the built program.

use std::process::Command;

use super::PROGRAM;

#[tokio::test(flavor = "multi_thread")]
async fn own_agent_finishes_within_a_minute() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/newcomer/first_agent.sh");
    let mut command = Command::new("sh");
    command.args([script, PROGRAM]);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}{err}", output.status);
    assert!(out.contains("the first execution FINISHED after"), "{out}{err}");
    print!("{out}");
}
