//! Skills in folders: `longhaul apply` and `longhaul skills`.

use super::Shell;
use crate::support::fleet::Fleet;

const SKILL: &str = "---\nname: refunds\ndescription: Rules for refunds.\n---\n\nWithin 30 days.\n";
const AGENT: &str = "key: desk\nname: Desk\nprompts:\n  conversation: hi\nskills: [refunds]\n";

#[tokio::test(flavor = "multi_thread")]
async fn skills_are_applied_from_folders() {
    let mut fleet = Fleet::start().await;
    let shell = Shell::open(&mut fleet).await;
    let folder = shell.dir.path().join("agents/skills/refunds");
    std::fs::create_dir_all(folder.join("references")).unwrap();
    let write = |path: &str, text: &str| std::fs::write(shell.dir.path().join("agents").join(path), text).unwrap();
    write("desk.yaml", AGENT);
    shell.refused(&["apply", "-f", "agents/desk.yaml"], 2, &["desk.yaml", "there is no skill `refunds`"]).await;
    write("skills/refunds/SKILL.md", SKILL);
    // Not a record of its own: it belongs to the skill.
    write("skills/refunds/references/rates.yaml", "rate: 2");
    let applied = shell.done(&["apply", "-f", "agents"]).await;
    assert_eq!(applied, "skill refunds: version 1 (new)\nagent desk: version 1 (new)\n");
    let again = shell.done(&["apply", "-f", "agents"]).await;
    assert_eq!(again, "skill refunds: version 1 (unchanged)\nagent desk: version 1 (unchanged)\n");
    write("skills/refunds/references/rates.yaml", "rate: 3");
    let changed = shell.done(&["apply", "-f", "agents"]).await;
    assert_eq!(changed, "skill refunds: version 2 (new)\nagent desk: version 2 (new)\n");
    let listed = shell.done(&["skills"]).await;
    assert!(
        listed.starts_with("refunds ") && listed.contains("v2") && listed.contains("Rules for refunds."),
        "{listed}"
    );
    assert_eq!(shell.json(&["skills"]).await["skills"][0]["version"], 2);
    write("skills/refunds/SKILL.md", "no front matter");
    shell.refused(&["apply", "-f", "agents"], 2, &["SKILL.md", "front matter"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn skill_is_applied_inside_its_folder() {
    let mut fleet = Fleet::start().await;
    let mut shell = Shell::open(&mut fleet).await;
    shell.folder = "refunds".into();
    let folder = shell.dir.path().join(&shell.folder);
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("SKILL.md"), SKILL).unwrap();
    let applied = shell.done(&["apply", "-f", "SKILL.md"]).await;
    assert_eq!(applied, "skill refunds: version 1 (new)\n");
}
