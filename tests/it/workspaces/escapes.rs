//! Attempts to reach files outside of the workspace through the tools.

use serde_json::Value;

use super::{Bench, bash, edit, error, list, read, write};

#[tokio::test(flavor = "multi_thread")]
async fn file_tools_follow_no_path_out() {
    let Some(bench) = Bench::start().await else { return };
    let worker = bench.fleet.worker();
    let links = "ln -s / root; ln -s /etc/passwd passwd; ln -s .. up; mkdir d; ln -s /proc/self/environ d/e; \
                 ln /etc/passwd hard; mkfifo pipe; ls -A | tr '\\n' ' '";
    let paths =
        ["root/etc/passwd", "passwd", "up/up/etc/passwd", "d/e", "../../etc/passwd", "/etc/passwd", "d/../../x"];
    let mut calls = vec![bash(links)];
    for path in paths {
        calls.extend([read(path), write(path, "x"), edit(path, "root", "x"), list(path)]);
    }
    calls.push(list(""));
    let results = bench.run([calls]).await;
    for result in &results[1..results.len() - 1] {
        let message = error(result)["message"].clone();
        let says = message.as_str().unwrap();
        let is_refused = ["symbolic link", "`..`", "absolute path"].iter().any(|reason| says.contains(reason));
        assert!(is_refused, "{result}");
    }
    let listed = results.last().unwrap();
    assert!(!listed.contains("hard") && !listed.contains("pipe"), "{listed}");
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_swapped_while_saved_leak_nothing() {
    let Some(bench) = Bench::start().await else { return };
    let worker = bench.fleet.worker();
    let swap = "mkdir d; for i in {1..400}; do echo $i > d/$i; done; \
                (while :; do rm -rf d/passwd x; ln -s /etc/passwd d/passwd; ln -s /etc x; rm -rf d/passwd x; \
                echo mine > d/passwd; mkdir x; echo mine > x/passwd; done) > /dev/null 2>&1 & sleep 0.2";
    for _ in 0..3 {
        let results =
            bench.run([vec![bash(swap)], vec![read("d/passwd"), read("x/passwd"), bash("cat d/* x/*")]]).await;
        for result in &results[1..] {
            assert!(!result.contains("root:"), "{result}");
        }
    }
    let sql = "select to_jsonb(count(*)) from file_bodies where convert_from(body, 'UTF8') like '%root:%'";
    assert_eq!(bench.fleet.json(sql).await, Value::from(0));
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workspaces_of_executions_are_apart() {
    let Some(bench) = Bench::start().await else { return };
    let worker = bench.fleet.worker();
    assert_eq!(bench.run([vec![write("mine", "secret")]]).await, ["wrote 6 bytes to mine"]);
    let results = bench.run([vec![list(""), bash("ls -A; ls -A $HOME $TMPDIR | grep -v :")]]).await;
    assert_eq!(results[0], "(the directory is empty)");
    assert!(!results[1].contains("mine"), "{}", results[1]);
    worker.drain().await;
}
