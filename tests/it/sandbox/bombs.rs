//! Code that exceeds its limits. Each test has outer bounds that a broken sandbox would reach before it harms the
//! machine.

use serde_json::{Value, json};

use super::service::{As, Mode, Service, Settings};

/// Small limits, so that little is used even if a limit fails.
const SMALL: Settings<'static> = &[
    ("memory_bytes", "201326592"),
    ("processes_max", "24"),
    ("files_bytes", "8388608"),
    ("files_max", "200"),
    ("output_bytes", "4096"),
];

/// Runs code in a service of its own. Afterwards no process or file of it may be left and the service must still
/// serve.
async fn bomb(mode: Mode, user: As, language: &str, code: &str, seconds: u32) -> Option<Value> {
    let service = Service::start(mode, user, SMALL).await?;
    let (_, answer) = service.ask(&json!({"language": language, "code": code, "timeout_seconds": seconds})).await;
    service.settles().await;
    Some(answer)
}

fn kind(answer: &Value) -> &str {
    answer["error"]["type"].as_str().unwrap_or("none")
}

/// On a disk, an open file may only be where the watch looks: not in a message, a landlock rule, or a thread's own
/// table.
async fn a_removed_file_cannot_be_hidden(user: As) {
    let Some(service) = Service::start(Mode::Landlock, user, SMALL).await else { return };
    let code = "\
import array, ctypes, errno, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    if libc.syscall(*arguments) < 0: raise OSError(ctypes.get_errno(), 'refused')
a, b = socket.socketpair()
file = os.open('.', os.O_TMPFILE | os.O_WRONLY)
attempts = {
    'message': lambda: a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [file]))]),
    'rule': lambda: call(444, (ctypes.c_uint64 * 1)(1), 8, 0),
    'table': lambda: call(436, 1000, 1001, 2),
    'thread': lambda: call(56, 0x10000 | 0x800 | 0x100, None, None, None, None),
}
result = {}
for name, attempt in attempts.items():
    try: result[name] = repr(attempt())
    except OSError as error: result[name] = errno.errorcode[error.errno]
a.sendall(b'text')
result['text'] = b.recv(4).decode()";
    let answer = service.python(code, Value::Null).await;
    let expected = json!({"message": "EPERM", "rule": "EPERM", "table": "EPERM", "thread": "EPERM", "text": "text"});
    assert_eq!(answer["result"], expected, "{answer}");
}

#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn a_removed_file_cannot_be_hidden_from_root() {
    a_removed_file_cannot_be_hidden(As::Self_).await;
}

#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn a_removed_file_cannot_be_hidden_from_a_user() {
    a_removed_file_cannot_be_hidden(As::Unprivileged).await;
}

/// Ordinary uses of removed files.
#[tokio::test]
async fn removed_files_have_the_same_limits() {
    for user in [As::Self_, As::Unprivileged] {
        let Some(service) = Service::start(Mode::Landlock, user, SMALL).await else { continue };
        let code = "\
import mmap, os, shutil, tempfile, time
with tempfile.TemporaryFile() as f, tempfile.TemporaryFile() as g:
    f.write(b'x' * (2 << 20))
    f.flush()
    m = mmap.mmap(f.fileno(), 2 << 20)
    f.seek(0)
    shutil.copyfileobj(f, g)
    for _ in range(10):
        if os.fork() == 0:
            time.sleep(0.2)
            os._exit(0)
    time.sleep(0.3)
    open('a', 'w').write('text')
    shutil.copyfile('a', 'b')
    result = [g.tell(), open('b').read(), os.system('cat a b | cat > c && cp c d && cmp c d')]";
        let answer = service.python(code, Value::Null).await;
        assert_eq!(answer["result"], json!([2 << 20, "text", 0]), "{answer}");
    }
}

/// The accepted error types of each bomb: the kernel's limit and the watch race each other.
macro_rules! bombs {
    ($($name:ident: $language:expr, $code:expr, [$($told:expr),*];)*) => {
        bombs!(@mode namespaces, Mode::Namespaces, As::Self_, [$($name, $language, $code, [$($told),*];)*]);
        bombs!(@mode landlock, Mode::Landlock, As::Self_, [$($name, $language, $code, [$($told),*];)*]);
        bombs!(@mode namespaces_unprivileged, Mode::Namespaces, As::Unprivileged,
            [$($name, $language, $code, [$($told),*];)*]);
        bombs!(@mode landlock_unprivileged, Mode::Landlock, As::Unprivileged,
            [$($name, $language, $code, [$($told),*];)*]);
    };
    (@mode $module:ident, $mode:expr, $user:expr, [$($name:ident, $language:expr, $code:expr, $told:expr;)*]) => {
        mod $module {
            use super::*;
            $(
                #[tokio::test]
                async fn $name() {
                    let told = $told;
                    // Bombs that only the time limit ends keep the machine's processors busy until then.
                    let seconds = if told[..] == ["SandboxTimeout"] { 3 } else { 15 };
                    let Some(answer) = bomb($mode, $user, $language, $code, seconds).await else { return };
                    assert!(told.contains(&kind(&answer)), "{answer:.2000}");
                }
            )*
        }
    };
}

bombs! {
    // At most a few thousand attempts, which the machine survives even without a limit.
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
raise RuntimeError(f'{made} processes' if made < 200 else 'unlimited')",
["RuntimeError", "ProcessLimitExceeded", "SandboxTimeout"];
    forks_of_bash: "bash", "\
n=0
f() { n=$((n+1)); if (( n < 6 )); then f & f & f & wait; fi; sleep 5; }
f; exit 1", ["ExitStatus", "ProcessLimitExceeded", "SandboxTimeout"];
    threads: "python", "\
import threading, time
for _ in range(2000):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    ["RuntimeError", "ProcessLimitExceeded", "MemoryError"];
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
    held.append(m)", ["PermissionError"];
    // At most one GiB, in mappings that are almost entirely unmapped.
    memory_left_in_shared_mappings: "python", "\
import ctypes, mmap
libc = ctypes.CDLL(None)
held = []
for _ in range(64):
    m = mmap.mmap(-1, 16 << 20)
    m.write(b'x' * (16 << 20))
    start = ctypes.addressof(ctypes.c_char.from_buffer(m))
    assert libc.munmap(ctypes.c_void_p(start + 4096), ctypes.c_size_t((16 << 20) - 4096)) == 0
    held.append(m)", ["PermissionError"];
    memory_of_a_device: "python", "\
import mmap, os
held = mmap.mmap(os.open('/dev/zero', os.O_RDWR), 4096)", ["PermissionError"];
    // A pipe keeps whole pages for single bytes. The test leaves one byte each.
    memory_left_in_pipes: "python", "\
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
r, w = os.pipe()
byte = ctypes.create_string_buffer(1)
file = os.open('x', os.O_RDWR | os.O_CREAT)
os.write(file, b'x')
vector = (ctypes.c_size_t * 2)(ctypes.addressof(byte), 1)
def vmsplice():
    if libc.vmsplice(w, vector, ctypes.c_size_t(1), 0) < 0:
        raise OSError(ctypes.get_errno(), 'refused')
for keep in (vmsplice, lambda: os.sendfile(w, file, 0, 1), lambda: libc.splice(file, None, w, None, \
ctypes.c_size_t(1), 0) == 1):
    try:
        if keep() is not False: raise RuntimeError('it is kept')
    except OSError:
        pass
raise OSError('refused')", ["OSError"];
    // 448 MiB, more than twice the limit, for at most ten seconds, in processes whose main thread has ended.
    memory_behind_a_dead_main_thread: "python", "\
import ctypes, os, threading, time
for _ in range(6):
    if os.fork() == 0:
        break
def hold():
    time.sleep(0.5)
    held = bytearray(b'x') * (64 << 20)
    time.sleep(10)
    os._exit(0)
threading.Thread(target=hold).start()
ctypes.CDLL(None).syscall(60, 0)", ["MemoryLimitExceeded"];
    endless_output: "python", "\
import os
while True: os.write(1, b'x' * 65536)", ["OutputLimitExceeded"];
    endless_errors: "bash", "yes >&2", ["OutputLimitExceeded"];
    huge_result: "python", "result = 'x' * (40 << 20)", ["SandboxProcessError", "MemoryError", "MemoryLimitExceeded"];
    huge_report: "bash", "head -c 100000000 /dev/zero >&8; head -c 100000000 /dev/zero >&8; exit 1",
    ["ExitStatus", "SandboxTimeout"];
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
    many_files_beside_a_zombie: "python", "\
import os, time
if os.fork() == 0: os._exit(0)
for i in range(3000): os.mkdir(f'd{i}')
time.sleep(60)", ["FileLimitExceeded"];
    // At most 64 MiB in each of these.
    files_below_a_long_path: "python", "\
import os, time
for _ in range(17):
    os.mkdir('a' * 255)
    os.chdir('a' * 255)
for i in range(64):
    with open(f'x{i}', 'wb') as f: f.write(b'x' * (1 << 20))
time.sleep(60)", ["OSError", "FileLimitExceeded"];
    files_in_an_unreadable_directory: "python", "\
import os, time
os.mkdir('d', 0o300)
for i in range(64):
    with open(f'd/x{i}', 'wb') as f: f.write(b'x' * (1 << 20))
time.sleep(60)", ["OSError", "FileLimitExceeded"];
    files_without_names: "python", "\
import os, time
held = []
for _ in range(64):
    held.append(open('x', 'wb'))
    os.unlink('x')
    held[-1].write(b'x' * (1 << 20))
    held[-1].flush()
time.sleep(60)", ["OSError", "FileLimitExceeded"];
    files_that_never_had_a_name: "python", "\
import os, time
held = []
for _ in range(64):
    held.append(os.open('.', os.O_TMPFILE | os.O_WRONLY))
    os.write(held[-1], b'x' * (1 << 20))
time.sleep(60)", ["OSError", "FileLimitExceeded"];
    files_that_are_only_mapped: "python", "\
import ctypes, os, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
for i in range(64):
    with open('x', 'wb+') as f:
        f.write(b'x' * (1 << 20))
        f.flush()
        assert libc.mmap(None, 4096, 1, 1, f.fileno(), 0) != ctypes.c_void_p(-1).value
    os.unlink('x')
time.sleep(60)", ["OSError", "FileLimitExceeded"];
    files_of_an_undumpable_process: "python", "\
import ctypes, os, time
ctypes.CDLL(None).prctl(4, 0)
held = []
for _ in range(64):
    held.append(os.open('.', os.O_TMPFILE | os.O_WRONLY))
    os.write(held[-1], b'x' * (1 << 20))
time.sleep(60)", ["OSError", "FileLimitExceeded"];
    files_behind_a_dead_main_thread: "python", "\
import ctypes, os, threading, time
def hold():
    time.sleep(0.5)
    held = []
    for _ in range(64):
        held.append(os.open('.', os.O_TMPFILE | os.O_WRONLY))
        os.write(held[-1], b'x' * (1 << 20))
    time.sleep(60)
threading.Thread(target=hold).start()
ctypes.CDLL(None).syscall(60, 0)", ["SandboxProcessError", "FileLimitExceeded"];
    open_files: "python", "\
held = [open('/dev/null') for _ in range(5000)]", ["OSError"];
    processor: "python", "while True: pass", ["SandboxTimeout"];
    processor_of_many: "bash", "for i in 1 2 3 4; do while :; do :; done & done; wait", ["SandboxTimeout"];
}
