//! Seccomp: which system calls exist for the code, which of those are refused, and with which arguments.
//!
//! Two filters. What is in neither list does not exist (`ENOSYS`, so that libraries fall back, as from `clone3` to `clone`): a
//! call that a later kernel brings is closed until somebody has looked at it. What is in [`refused`] answers `EPERM`. Each list
//! says for which reason something is on it. A foreign architecture's calls end the process.

use std::{collections::BTreeMap, io};

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};

/// What else than the code the kernel objects within reach belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Namespaces hide everything else.
    Own,
    /// Processes and files of the same user are within reach of calls that landlock does not see.
    Shared {
        /// Whether landlock keeps signals within; otherwise the code may only signal its first process and its group.
        signals_are_fenced: bool,
        /// The process that the filter is for; becoming the interpreter keeps its id.
        own: i32,
    },
}

/// Never taken back, and inherited by all children.
///
/// # Errors
/// The kernel refuses, or this architecture has no filter.
pub(crate) fn apply(reach: Reach) -> io::Result<()> {
    let refused = refused(reach)?;
    let mut known: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    known.extend(LEGACY.iter().map(|call| (*call, Vec::new())));
    known.extend(refused.keys().map(|call| (*call, Vec::new())));
    let eperm = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let enosys = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    install(refused, SeccompAction::Allow, eperm)?;
    install(known, enosys, SeccompAction::Allow)
}

fn install(calls: BTreeMap<i64, Vec<SeccompRule>>, otherwise: SeccompAction, matched: SeccompAction) -> io::Result<()> {
    let architecture = std::env::consts::ARCH.try_into().map_err(io::Error::other)?;
    let filter = SeccompFilter::new(calls, otherwise, matched, architecture).map_err(io::Error::other)?;
    let program = BpfProgram::try_from(filter).map_err(io::Error::other)?;
    apply_filter(&program).map_err(io::Error::other)
}

/// The calls that are refused, each always or where one of its rules matches.
fn refused(reach: Reach) -> io::Result<BTreeMap<i64, Vec<SeccompRule>>> {
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    refused.insert(
        libc::SYS_socketpair,
        vec![
            rule(&[(0, SeccompCmpOp::Ne, AF_UNIX)])?,
            // A datagram socket could be pointed at any address; of a stream, both ends stay here.
            rule(&[(1, SeccompCmpOp::MaskedEq(SOCKET_TYPE), SOCK_DGRAM)])?,
            rule(&[(1, SeccompCmpOp::MaskedEq(SOCKET_TYPE), SOCK_SEQPACKET)])?,
        ],
    );
    refused.insert(libc::SYS_clone, CLONE.iter().map(|flag| bit(0, *flag)).collect::<Result<_, _>>()?);
    refused.insert(libc::SYS_ioctl, IOCTL.iter().map(|command| equal(1, *command)).collect::<Result<_, _>>()?);
    refused.insert(libc::SYS_fcntl, FCNTL.iter().map(|command| equal(1, *command)).collect::<Result<_, _>>()?);
    // Asking is fine, and so is what glibc does for itself.
    refused.insert(libc::SYS_personality, vec![rule(&[(0, SeccompCmpOp::Ne, ASKING)])?]);
    refused.insert(libc::SYS_prlimit64, vec![rule(&[(0, SeccompCmpOp::Ne, 0)])?]);
    if let Reach::Shared { signals_are_fenced, own } = reach {
        refused.extend(OF_OTHERS.iter().chain(OF_OTHERS_LEGACY).map(|call| (*call, Vec::new())));
        for (call, flags) in OPENING {
            let reading = (*flags, SeccompCmpOp::MaskedEq(ACCESS_MODE), READ_ONLY);
            refused.insert(*call, vec![rule(&[reading, (*flags, SeccompCmpOp::MaskedEq(TRUNCATE), TRUNCATE)])?]);
        }
        if !signals_are_fenced {
            let own = u64::from(own.unsigned_abs());
            refused.insert(libc::SYS_kill, vec![rule(&[(0, SeccompCmpOp::Ne, own), (0, SeccompCmpOp::Ne, 0)])?]);
            refused.insert(libc::SYS_tgkill, vec![rule(&[(0, SeccompCmpOp::Ne, own)])?]);
            for call in [libc::SYS_tkill, libc::SYS_rt_sigqueueinfo, libc::SYS_rt_tgsigqueueinfo] {
                refused.insert(call, Vec::new());
            }
        }
    }
    Ok(refused)
}

/// Matches when all of these hold, each an argument's number, how to compare, and with what. Only the lower half of an argument
/// is looked at, as the kernel does for all of them.
fn rule(conditions: &[(u8, SeccompCmpOp, u64)]) -> io::Result<SeccompRule> {
    let conditions = conditions.iter().map(|(argument, compare, value)| {
        SeccompCondition::new(*argument, SeccompCmpArgLen::Dword, compare.clone(), *value)
    });
    let conditions = conditions.collect::<Result<Vec<_>, _>>().map_err(io::Error::other)?;
    SeccompRule::new(conditions).map_err(io::Error::other)
}

fn bit(argument: u8, flag: u64) -> io::Result<SeccompRule> {
    rule(&[(argument, SeccompCmpOp::MaskedEq(flag), flag)])
}

fn equal(argument: u8, value: u64) -> io::Result<SeccompRule> {
    rule(&[(argument, SeccompCmpOp::Eq, value)])
}

/// Opening for reading alone and cutting short: landlock before its third version takes it for reading. The call and where its
/// flags are.
#[cfg(target_arch = "x86_64")]
const OPENING: &[(c_long, u8)] = &[(libc::SYS_openat, 2), (libc::SYS_open, 1)];
#[cfg(not(target_arch = "x86_64"))]
const OPENING: &[(c_long, u8)] = &[(libc::SYS_openat, 2)];
const ACCESS_MODE: u64 = 0o3;
const READ_ONLY: u64 = 0;
const TRUNCATE: u64 = 0o1000;
const AF_UNIX: u64 = 1;
const SOCKET_TYPE: u64 = 0xf;
const SOCK_DGRAM: u64 = 2;
const SOCK_SEQPACKET: u64 = 5;
const ASKING: u64 = 0xffff_ffff;
/// `CLONE_NEWNS`, `_NEWCGROUP`, `_NEWUTS`, `_NEWIPC`, `_NEWUSER`, `_NEWPID`, `_NEWNET`; and `CLONE_PARENT`, with which a process
/// would be a child of whom it does not know.
const CLONE: [u64; 8] = [0x2_0000, 0x200_0000, 0x400_0000, 0x800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000, 0x8000];
/// `TIOCSTI` and `TIOCLINUX` type for whoever sits at the terminal; `FIOSETOWN` and `SIOCSPGRP` are `F_SETOWN`.
const IOCTL: [u64; 4] = [0x5412, 0x541c, 0x8901, 0x8902];
/// `F_SETOWN`, `F_SETSIG` and `F_SETOWN_EX`: with them an open file sends a signal of choice to a process of choice.
const FCNTL: [u64; 3] = [8, 10, 15];

/// Refused always.
const REFUSED: &[c_long] = &[
    // The network, and sockets of this machine. What Python needs for itself is a pair.
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    // Leaving the process group, by which everything is killed.
    libc::SYS_setsid,
    libc::SYS_setpgid,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_kcmp,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    // Namespaces and mounts.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    // Memory that no limit counts, or that outlives the process.
    libc::SYS_memfd_create,
    libc::SYS_memfd_secret,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_shmdt,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semctl,
    libc::SYS_semtimedop,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_mq_timedsend,
    libc::SYS_mq_timedreceive,
    libc::SYS_mq_notify,
    libc::SYS_mq_getsetattr,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // Large and often broken parts of the kernel; io_uring would also go round every filter.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_setup,
    libc::SYS_io_destroy,
    libc::SYS_io_submit,
    libc::SYS_io_cancel,
    libc::SYS_io_getevents,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    libc::SYS_remap_file_pages,
    // The machine.
    libc::SYS_reboot,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_vhangup,
    libc::SYS_nfsservctl,
    // Who the process is; without privileges nothing of it works anyhow.
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    libc::SYS_capset,
    // Priorities, of others too.
    libc::SYS_setpriority,
    libc::SYS_ioprio_set,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setaffinity,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_mbind,
    libc::SYS_set_mempolicy,
];

/// Refused where files of others are within reach: landlock does not see them. Cutting a file short it sees from its third version
/// on, so a path is not enough anywhere; an open file is.
const OF_OTHERS: &[c_long] = &[
    libc::SYS_truncate,
    // Its flags lie in memory, where no filter sees them.
    libc::SYS_openat2,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_add_watch,
];

/// What interpreters, compilers and the usual tools live on.
const ALLOWED: &[c_long] = &[
    // Files by descriptor.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_fstat,
    libc::SYS_lseek,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_readahead,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_vmsplice,
    libc::SYS_copy_file_range,
    libc::SYS_getdents64,
    libc::SYS_pipe2,
    libc::SYS_ioctl,
    // Files by path.
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_getcwd,
    libc::SYS_chdir,
    libc::SYS_fchdir,
    libc::SYS_umask,
    libc::SYS_truncate,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    libc::SYS_fgetxattr,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_flistxattr,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_rm_watch,
    // Memory.
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_msync,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_mlockall,
    libc::SYS_munlockall,
    libc::SYS_membarrier,
    libc::SYS_get_mempolicy,
    libc::SYS_pkey_alloc,
    libc::SYS_pkey_free,
    libc::SYS_pkey_mprotect,
    // Processes and threads.
    libc::SYS_clone,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_set_tid_address,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_rseq,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_prctl,
    libc::SYS_seccomp,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_restrict_self,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getpgid,
    libc::SYS_getsid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_getgroups,
    libc::SYS_capget,
    libc::SYS_getpriority,
    libc::SYS_ioprio_get,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getattr,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_sched_rr_get_interval,
    libc::SYS_getcpu,
    libc::SYS_getrlimit,
    libc::SYS_setrlimit,
    libc::SYS_prlimit64,
    libc::SYS_getrusage,
    libc::SYS_times,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_getrandom,
    libc::SYS_personality,
    // Signals.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_signalfd4,
    // Time and waiting.
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_getitimer,
    libc::SYS_setitimer,
    libc::SYS_timer_create,
    libc::SYS_timer_settime,
    libc::SYS_timer_gettime,
    libc::SYS_timer_getoverrun,
    libc::SYS_timer_delete,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_eventfd2,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    // Pairs of sockets, and the one that the request came by.
    libc::SYS_socketpair,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_setsockopt,
    libc::SYS_getsockopt,
];

/// The older forms of the above.
#[cfg(target_arch = "x86_64")]
const LEGACY: &[c_long] = &[
    libc::SYS_open,
    libc::SYS_creat,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_mknod,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_getdents,
    libc::SYS_dup2,
    libc::SYS_pipe,
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_getpgrp,
    libc::SYS_arch_prctl,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_signalfd,
    libc::SYS_inotify_init,
    libc::SYS_alarm,
    libc::SYS_pause,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const LEGACY: &[c_long] = &[];

#[cfg(target_arch = "x86_64")]
const OF_OTHERS_LEGACY: &[c_long] = &[
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_inotify_init,
];
#[cfg(not(target_arch = "x86_64"))]
const OF_OTHERS_LEGACY: &[c_long] = &[];

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File, OpenOptions},
        net::TcpListener,
        os::unix::{
            fs::OpenOptionsExt,
            net::{UnixDatagram, UnixListener, UnixStream},
        },
        thread,
    };

    use rustix::{
        io::Errno,
        process::{getpid, getppid, test_kill_current_process_group, test_kill_process},
    };

    use super::*;

    /// What a filter does, in a thread of its own: it holds for that one alone.
    fn under<T: Send + 'static>(reach: Reach, what: impl FnOnce() -> T + Send + 'static) -> T {
        let filtered = thread::spawn(move || {
            apply(reach).unwrap();
            what()
        });
        filtered.join().unwrap()
    }

    fn shared(signals_are_fenced: bool) -> Reach {
        Reach::Shared { signals_are_fenced, own: getpid().as_raw_nonzero().get() }
    }

    fn is_refused<T: std::fmt::Debug>(tried: io::Result<T>) {
        assert_eq!(tried.unwrap_err().raw_os_error(), Some(libc::EPERM));
    }

    /// Kernels before 6.12 have a landlock that lets signals through.
    #[test]
    fn signals_stay_within_where_landlock_does_not_keep_them() {
        let parent = getppid().unwrap();
        assert!(test_kill_process(parent).is_ok(), "it can be reached without a filter");
        under(shared(false), move || {
            assert_eq!(test_kill_process(parent), Err(Errno::PERM));
            assert_eq!(test_kill_process(getpid()), Ok(()));
            assert_eq!(test_kill_current_process_group(), Ok(()));
        });
        under(shared(true), move || assert_eq!(test_kill_process(parent), Ok(())));
    }

    /// Kernels before 6.2 have a landlock that takes this for reading.
    #[test]
    fn a_file_that_may_be_read_cannot_be_cut_short() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "text").unwrap();
        let file = path.clone();
        under(shared(true), move || {
            is_refused(OpenOptions::new().read(true).custom_flags(libc::O_TRUNC).open(&file));
            assert!(File::open(&file).is_ok() && File::create(file.with_extension("new")).is_ok());
        });
        assert_eq!(fs::read_to_string(path).unwrap(), "text");
    }

    #[test]
    fn sockets_are_refused_in_every_reach_and_pairs_are_not() {
        let directory = tempfile::tempdir().unwrap();
        for reach in [Reach::Own, shared(true), shared(false)] {
            let path = directory.path().join("socket");
            under(reach, move || {
                is_refused(TcpListener::bind(("127.0.0.1", 0)));
                is_refused(UnixListener::bind(path));
                is_refused(UnixDatagram::pair());
                assert!(UnixStream::pair().is_ok());
            });
        }
    }

    #[test]
    fn nothing_is_both_refused_always_and_allowed() {
        let both: Vec<_> = REFUSED.iter().filter(|call| ALLOWED.contains(call) || LEGACY.contains(call)).collect();
        assert!(both.is_empty(), "{both:?}");
        let unknown: Vec<_> = OF_OTHERS.iter().filter(|call| !ALLOWED.contains(call)).collect();
        assert!(unknown.is_empty(), "refused to some, unknown to the others: {unknown:?}");
    }
}
