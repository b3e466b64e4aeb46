//! Escape attempts, each refused in each mode and, unless marked `no_twin`, successful without confinement.
//!
//! An attempt without a twin needs rights that the code has in no mode (mounts), or would do harm (killing the
//! service).

use super::{
    attempts::{self, Outside},
    service::{As, Mode, shared},
};

/// Fails if the attempt gets through, harms the service or changes a target.
async fn is_refused(mode: Mode, user: As, body: &str) {
    let Some(service) = shared(mode, user).await else { return };
    let outside = Outside::new(&service);
    let before = outside.state();
    let (through, answer) = attempts::make(&service, &outside, body).await;
    assert!(!through, "it got through: {answer:#}");
    assert_eq!(outside.state(), before, "it changed what is outside: {answer:#}");
    assert_eq!(service.python("result = 42", ().into()).await["result"], 42, "the service is harmed");
}

/// Fails if the attempt does not get through without confinement.
async fn would_get_through(body: &str) {
    // As a user that the code shares with its service, which is always so for tests that are not root.
    let Some(service) = (match shared(Mode::Unconfined, As::Unprivileged).await {
        None => shared(Mode::Unconfined, As::Self_).await,
        some => some,
    }) else {
        return;
    };
    let outside = Outside::new(&service);
    let (through, answer) = attempts::make(&service, &outside, body).await;
    assert!(through, "an attempt that cannot work shows nothing: {answer:#}");
}

macro_rules! escapes {
    ($($name:ident: $twin:ident, $body:expr;)*) => {
        escapes!(@modes [$($name, $body;)*]);
        mod unconfined {
            use super::*;
            $(escapes!(@twin $twin, $name, $body);)*
        }
    };
    (@twin twin, $name:ident, $body:expr) => {
        #[tokio::test]
        async fn $name() {
            would_get_through($body).await;
        }
    };
    (@twin no_twin, $name:ident, $body:expr) => {};
    (@modes $all:tt) => {
        escapes!(@mode namespaces, Mode::Namespaces, As::Self_, $all);
        escapes!(@mode landlock, Mode::Landlock, As::Self_, $all);
        escapes!(@mode namespaces_unprivileged, Mode::Namespaces, As::Unprivileged, $all);
        escapes!(@mode landlock_unprivileged, Mode::Landlock, As::Unprivileged, $all);
    };
    (@mode $module:ident, $mode:expr, $user:expr, [$($name:ident, $body:expr;)*]) => {
        mod $module {
            use super::*;
            $(
                #[tokio::test]
                async fn $name() {
                    is_refused($mode, $user, $body).await;
                }
            )*
        }
    };
}

escapes! {
    // The network, and sockets of the machine.
    tcp: twin, "socket.create_connection(('127.0.0.1', outside['tcp']), 5)\nreturn True";
    udp: twin, "return socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', outside['udp']))";
    dns: no_twin, "return socket.getaddrinfo('example.com', 80)";
    listening: twin, "\
s = socket.socket()
s.bind(('127.0.0.1', 0))
s.listen()
return True";
    raw_packets: no_twin, "return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)";
    netlink: twin, "return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)";
    unix_stream: twin, "\
s = socket.socket(socket.AF_UNIX)
s.connect(outside['dir'] + '/stream')
return True";
    unix_datagram: twin, "\
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
return s.sendto(b'x', outside['dir'] + '/datagram')";
    datagram_of_a_pair: twin, "\
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
return a.sendto(b'x', outside['dir'] + '/datagram')";
    abstract_socket: twin, "\
s = socket.socket(socket.AF_UNIX)
s.connect('\\0' + outside['abstract'])
return True";
    the_sandbox_itself: no_twin, "\
s = socket.socket(fileno=0)
return s.connect('\\0x')";

    // Secrets of the parent and of the machine.
    own_environment: no_twin, "\
known = {'PATH', 'LANG', 'LC_ALL', 'USER', 'LOGNAME', 'HOME', 'TMPDIR', 'PWD', 'LC_CTYPE', 'SHLVL', '_'}
return set(os.environ) - known or outside['secret'] in str(os.environ)";
    environment_of_the_service: no_twin, "return Path(f\"/proc/{outside['service']}/environ\").read_bytes()";
    environment_of_the_parent: no_twin, "return outside['secret'] in Path(f'/proc/{os.getppid()}/environ').read_text()";
    environment_of_any_process: no_twin, "\
for pid in os.listdir('/proc'):
    try:
        if outside['secret'] in Path(f'/proc/{pid}/environ').read_text():
            return pid
    except OSError:
        pass";
    processes_of_the_machine: twin, "return Path(f\"/proc/{outside['service']}/cmdline\").read_bytes()";
    file_of_the_services_user: twin, "return Path(outside['treasure']).read_text() == outside['treasured']";
    file_of_everybody: twin, "return Path(outside['dir'] + '/readable').read_text()";
    directory_of_the_service: twin, "return os.listdir(outside['service_dir'])";
    shadow: no_twin, "return Path('/etc/shadow').read_text()";
    passwd: twin, "return Path('/etc/passwd').read_text()";
    home_of_root: no_twin, "return os.listdir('/root')";
    kernel_log: no_twin, "return call(103, 3, ctypes.create_string_buffer(4096), 4096)";
    open_files_left_behind: no_twin, "\
import stat
kinds = []
for fd in range(1024):
    try:
        mode = os.fstat(fd).st_mode
    except OSError:
        continue
    # Null, pipes and the channel.
    if not (stat.S_ISCHR(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        kinds.append((fd, oct(mode)))
return kinds";

    // Writing outside.
    new_file: twin, "return Path(outside['dir'] + '/new').write_text('x')";
    new_directory: twin, "os.mkdir(outside['dir'] + '/new')\nreturn True";
    overwriting: twin, "return Path(outside['victim']).write_text('overwritten')";
    cutting_short: twin, "os.truncate(outside['victim'], 0)\nreturn True";
    removing: twin, "os.remove(outside['dir'] + '/stream')\nreturn True";
    renaming: twin, "os.rename(outside['dir'] + '/readable', outside['dir'] + '/elsewhere')\nreturn True";
    moving_in: no_twin, "os.rename(outside['dir'] + '/readable', 'mine')\nreturn True";
    permissions: twin, "os.chmod(outside['victim'], 0o777)\nreturn True";
    permissions_by_descriptor: twin, "\
fd = os.open(outside['victim'], os.O_RDONLY)
os.fchmod(fd, 0o777)
return True";
    times: twin, "os.utime(outside['victim'], (1, 1))\nreturn True";
    attributes: no_twin, "os.setxattr(outside['victim'], 'user.x', b'x')\nreturn True";
    system_directory: no_twin, "return Path('/usr/bin/longhaul-test').write_text('x')";
    root_directory: no_twin, "return Path('/longhaul-test').write_text('x')";
    devices: no_twin, "return Path('/dev/longhaul-test').write_text('x')";
    disks: no_twin, "\
for name in os.listdir('/sys/block') if os.path.exists('/sys/block') else ['vda', 'sda', 'nvme0n1', 'mem', 'kmsg']:
    try:
        return os.open('/dev/' + name, os.O_RDWR)
    except OSError:
        pass";
    making_a_device: no_twin, "os.mknod('disk', 0o600 | 0o60000, os.makedev(254, 0))\nreturn True";

    // Symbolic and hard links.
    link_to_a_file: twin, "\
os.symlink(outside['treasure'], 'link')
return Path('link').read_text()";
    link_to_a_directory: twin, "\
os.symlink(outside['dir'], 'link')
return os.listdir('link')";
    writing_through_a_link: twin, "\
os.symlink(outside['dir'] + '/new', 'link')
return Path('link').write_text('x')";
    hard_link: no_twin, "\
os.link(outside['treasure'], 'link')
return Path('link').read_text()";
    dots: twin, "return Path('../' * 40 + outside['treasure'].lstrip('/')).read_text()";

    // Paths through /proc.
    proc_self_root: twin, "return Path('/proc/self/root' + outside['treasure']).read_text()";
    proc_self_cwd: twin, "return Path('/proc/self/cwd/' + '../' * 40 + outside['treasure'].lstrip('/')).read_text()";
    proc_1_root: no_twin, "return Path('/proc/1/root' + outside['treasure']).read_text()";
    root_of_the_parent: no_twin, "return Path(f'/proc/{os.getppid()}/root' + outside['treasure']).read_text()";
    directory_of_the_parent: no_twin, "return os.listdir(f\"/proc/{outside['service']}/cwd\")";
    memory_of_the_parent: no_twin, "return open(f'/proc/{os.getppid()}/mem', 'rb+')";
    descriptors_of_the_parent: no_twin, "\
import stat
for fd in os.listdir(f'/proc/{os.getppid()}/fd'):
    try:
        opened = os.open(f'/proc/{os.getppid()}/fd/{fd}', os.O_RDWR)
    except OSError:
        continue
    # Its own output is the code's as well.
    if not (stat.S_ISFIFO(os.fstat(opened).st_mode) or stat.S_ISCHR(os.fstat(opened).st_mode)):
        return fd";
    sysrq: no_twin, "return Path('/proc/sysrq-trigger').write_text('h')";
    kernel_settings: no_twin, "return Path('/proc/sys/kernel/core_pattern').write_text('|/bin/true')";
    last_to_be_killed: no_twin, "return Path('/proc/self/oom_score_adj').write_text('-1000')";
    kernel_memory: no_twin, "return open('/proc/kcore', 'rb').read(1)";
    cgroups: no_twin, "return Path('/sys/fs/cgroup/cgroup.procs').write_text('0') or Path('/sys/fs/cgroup/x').mkdir()";

    // Other processes.
    killing_the_parent: no_twin, "os.kill(os.getppid(), 9)\nreturn os.getppid() != 1";
    killing_the_service: no_twin, "os.kill(outside['service'], 9)\nreturn True";
    asking_for_the_service: twin, "os.kill(outside['service'], 0)\nreturn True";
    killing_by_thread: no_twin,
    "return call(234, outside['service'], outside['service'], 9) or call(200, outside['service'], 9)";
    // It succeeds even if it reached no process; the test checks that the service still lives.
    killing_every_process: no_twin, "os.kill(-1, 9)\nreturn False";
    killing_by_an_open_file: no_twin, "\
import fcntl
a, b = socket.socketpair()
fcntl.fcntl(a, fcntl.F_SETSIG if hasattr(fcntl, 'F_SETSIG') else 10, 9)
fcntl.fcntl(a, fcntl.F_SETOWN, outside['service'])
fcntl.fcntl(a, fcntl.F_SETFL, os.O_ASYNC)
b.send(b'x')
return True";
    owning_an_open_file: twin, "\
import fcntl
return fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid()) == 0";
    killing_by_descriptor: no_twin, "return call(424, os.pidfd_open(outside['service']), 9, None, 0)";
    leaving_the_session: twin, "\
if os.fork() == 0:
    try:
        os.setsid()
        os._exit(7)
    except OSError:
        os._exit(0)
return os.waitstatus_to_exitcode(os.wait()[1]) == 7";
    leaving_the_group: twin, "\
if os.fork() == 0:
    try:
        os.setpgid(0, 0)
        os._exit(7)
    except OSError:
        os._exit(0)
return os.waitstatus_to_exitcode(os.wait()[1]) == 7";
    tracing_the_parent: no_twin, "return call(101, 16, os.getppid(), 0, 0)";
    being_traced: twin, "return call(101, 0, 0, 0, 0)";
    reading_the_parents_memory: no_twin, "\
b = ctypes.create_string_buffer(16)
iov = (ctypes.c_void_p * 2)(ctypes.addressof(b), 16)
return call(310, os.getppid(), iov, 1, iov, 1, 0)";
    priority: twin, "os.setpriority(os.PRIO_PROCESS, 0, 5)\nreturn True";
    limits_of_the_service: no_twin, "\
import resource
return resource.prlimit(outside['service'], resource.RLIMIT_NOFILE)";

    // Limits and rights.
    raising_limits: no_twin, "\
import resource
raised = []
for name in ('AS', 'CPU', 'FSIZE', 'NOFILE', 'NPROC', 'CORE', 'STACK'):
    which = getattr(resource, 'RLIMIT_' + name)
    hard = resource.getrlimit(which)[1]
    if hard == resource.RLIM_INFINITY:
        raised.append(name + ' has no limit')
        continue
    for more in (hard + 1, resource.RLIM_INFINITY):
        try:
            resource.setrlimit(which, (more, more))
            raised.append(name)
        except (ValueError, OSError):
            pass
return raised";
    capabilities: no_twin, "\
import resource
try:
    status = Path('/proc/self/status').read_text()
    return any(int(l.split()[1], 16) for l in status.splitlines() if l.startswith(('CapEff', 'CapPrm', 'CapInh', \
    'CapAmb')))
except OSError:
    os.chroot('.')
    return True";
    becoming_root: no_twin, "os.setuid(0)\nreturn True";
    being_root: no_twin, "return os.getuid() == 0 or os.geteuid() == 0 or 0 in os.getgroups()";
    programs_with_rights: no_twin, "\
import subprocess
for tool in ('su', 'sudo', 'mount', 'passwd', 'newgrp'):
    try:
        done = subprocess.run([tool, '-c', 'id -u'], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.stdout.strip() == '0':
            return tool
    except OSError:
        pass";

    // Mounts and namespaces.
    mounting: no_twin, "return call(165, b'none', b'/mnt', b'tmpfs', 0, None)";
    unmounting: no_twin, "return call(166, b'/usr', 2)";
    new_mount_interface: no_twin, "return call(430, b'tmpfs', 0)";
    changing_root: no_twin, "os.chroot('/')\nreturn True";
    pivoting_root: no_twin, "return call(155, b'.', b'.')";
    new_user_namespace: twin, "return call(272, 0x10000000)";
    new_user_namespace_by_clone: no_twin, "return call(56, 0x10000000 | 17, None, None, None, None)";
    new_user_namespace_by_clone3: no_twin, "\
arguments = (ctypes.c_uint64 * 11)(0x10000000, 0, 0, 0, 17)
return call(435, arguments, 88)";
    joining_namespaces: no_twin, "return call(308, os.open(f'/proc/{os.getppid()}/ns/net', os.O_RDONLY), 0)";

    // Kernel interfaces that no code here needs.
    io_uring: no_twin, "return call(425, 4, ctypes.create_string_buffer(120))";
    bpf: no_twin, "return call(321, 0, ctypes.create_string_buffer(64), 64)";
    perf: no_twin, "return call(298, ctypes.create_string_buffer(128), 0, -1, -1, 0)";
    userfaultfd: no_twin, "return call(323, 1)";
    key_rings: twin, "return call(250, 0, -3, 1)";
    memory_files: twin, "return os.memfd_create('x')";
    system_v_memory: twin, "return call(29, 0, 4096, 0o1600)";
    message_queues: no_twin, "return call(240, b'longhaul-test', 0o102, 0o600, None)";
    file_handles: no_twin, "return call(304, -100, ctypes.create_string_buffer(128), 0)";
    calls_of_another_abi: no_twin, "return call(0x40000000 | 41, 2, 1, 0)";
    typing_at_the_terminal: no_twin, "\
import fcntl
fcntl.ioctl(1, 0x5412, b'x')
return True";
    address_randomisation: twin, "return call(135, 0x0040000)";
}
