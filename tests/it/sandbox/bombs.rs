//! Code that takes more than its share. Each test has outer limits that a broken sandbox would run into before the machine does.

use serde_json::{Value, json};

use super::service::{As, Mode, Service, Settings};

/// Small shares, so that little is taken even if all of it is.
const SMALL: Settings<'static> = &[
    ("memory_bytes", "201326592"),
    ("processes_max", "24"),
    ("files_bytes", "8388608"),
    ("files_max", "200"),
    ("output_bytes", "4096"),
];

/// Runs code in a service of its own; afterwards nothing of it may be left and the service must go on.
async fn bomb(mode: Mode, user: As, language: &str, code: &str) -> Option<Value> {
    let service = Service::start(mode, user, SMALL).await?;
    let (_, answer) = service.ask(&json!({"language": language, "code": code, "timeout_seconds": 15})).await;
    service.settles().await;
    Some(answer)
}

fn kind(answer: &Value) -> &str {
    answer["error"]["type"].as_str().unwrap_or("none")
}

/// What a bomb may be told. Which limit is met first, that of the kernel or the watch, is a race.
macro_rules! bombs {
    ($($name:ident: $language:expr, $code:expr, [$($told:expr),*];)*) => {
        bombs!(@mode namespaces, Mode::Namespaces, As::Self_, [$($name, $language, $code, [$($told),*];)*]);
        bombs!(@mode landlock, Mode::Landlock, As::Self_, [$($name, $language, $code, [$($told),*];)*]);
        bombs!(@mode namespaces_unprivileged, Mode::Namespaces, As::Unprivileged, [$($name, $language, $code, [$($told),*];)*]);
        bombs!(@mode landlock_unprivileged, Mode::Landlock, As::Unprivileged, [$($name, $language, $code, [$($told),*];)*]);
    };
    (@mode $module:ident, $mode:expr, $user:expr, [$($name:ident, $language:expr, $code:expr, $told:expr;)*]) => {
        mod $module {
            use super::*;
            $(
                #[tokio::test]
                async fn $name() {
                    let Some(answer) = bomb($mode, $user, $language, $code).await else { return };
                    assert!($told.contains(&kind(&answer)), "{answer:.2000}");
                }
            )*
        }
    };
}

bombs! {
    // At most a few thousand attempts: without a limit the machine would still be there.
    forks: "python", "\
import os
made = 0
for _ in range(2000):
    try:
        if os.fork() == 0:
            import time
            time.sleep(60)
    except BlockingIOError:
        continue
    made += 1
print(made)
raise RuntimeError(f'{made} processes' if made < 200 else 'unlimited')", ["RuntimeError", "ProcessLimitExceeded", "SandboxTimeout"];
    forks_of_bash: "bash", "\
n=0
f() { n=$((n+1)); if (( n < 6 )); then f & f & f & wait; fi; sleep 30; }
f; exit 1", ["ExitStatus", "ProcessLimitExceeded", "SandboxTimeout"];
    threads: "python", "\
import threading, time
for _ in range(2000):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()", ["RuntimeError", "ProcessLimitExceeded", "MemoryError"];
    memory: "python", "\
held = []
for _ in range(64):
    held.append(bytearray(b'x') * (16 << 20))", ["MemoryError", "MemoryLimitExceeded", "SandboxProcessError"];
    memory_in_one_step: "python", "held = bytearray(1 << 30)", ["MemoryError"];
    memory_of_many: "python", "\
import os, time
for _ in range(12):
    if os.fork() == 0:
        held = bytearray(b'x') * (60 << 20)
        time.sleep(60)
time.sleep(60)", ["MemoryLimitExceeded"];
    memory_by_mapping: "python", "\
import mmap
held = []
for _ in range(64):
    m = mmap.mmap(-1, 16 << 20)
    m.write(b'x' * (16 << 20))
    held.append(m)", ["OSError", "MemoryError", "MemoryLimitExceeded"];
    endless_output: "python", "\
import os
while True: os.write(1, b'x' * 65536)", ["OutputLimitExceeded"];
    endless_errors: "bash", "yes >&2", ["OutputLimitExceeded"];
    huge_result: "python", "result = 'x' * (40 << 20)", ["SandboxProcessError", "MemoryError", "MemoryLimitExceeded"];
    huge_report: "bash", "head -c 100000000 /dev/zero >&8; head -c 100000000 /dev/zero >&8; exit 1", ["ExitStatus", "SandboxTimeout"];
    one_large_file: "python", "\
with open('x', 'wb') as f:
    for _ in range(64): f.write(b'x' * (1 << 20)); f.flush()", ["OSError", "FileLimitExceeded"];
    large_files: "python", "\
for i in range(64):
    with open(f'x{i}', 'wb') as f: f.write(b'x' * (1 << 20))
import time; time.sleep(60)", ["OSError", "FileLimitExceeded"];
    many_files: "python", "\
import os, time
for i in range(3000): os.mkdir(f'd{i}')
time.sleep(60)", ["FileLimitExceeded"];
    deep_directories: "python", "\
import os, time
for i in range(3000):
    os.mkdir('d')
    os.chdir('d')
time.sleep(60)", ["FileLimitExceeded"];
    open_files: "python", "\
held = [open('/dev/null') for _ in range(5000)]", ["OSError"];
    processor: "python", "while True: pass", ["SandboxTimeout"];
    processor_of_many: "bash", "for i in 1 2 3 4; do while :; do :; done & done; wait", ["SandboxTimeout"];
}
