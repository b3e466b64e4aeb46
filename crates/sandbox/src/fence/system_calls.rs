//! Seccomp: the system calls that the code may make, and the arguments that are refused.
//!
//! There are two filters. A call in neither list answers `ENOSYS`, so that libraries fall back (from `clone3` to
//! `clone`) and a call of a later kernel stays closed until it is reviewed. A call in [`refused`] answers `EPERM`.
//! The lists are in `call_lists`. A call of a foreign architecture ends the process.

use std::{collections::BTreeMap, io};

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};

use super::call_lists::{ALLOWED, HIDING, LEGACY, OF_OTHERS, OF_OTHERS_LEGACY, REFUSED};

/// Owner of the kernel objects within reach of the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KernelObjects {
    /// Namespaces hide everything else.
    Own,
    /// Processes and files of the same user are within reach of calls that landlock does not control.
    Shared {
        /// True if landlock confines signals; otherwise the code may only signal its first process and its group.
        signals_are_fenced: bool,
        /// Id of the process that the filter is for; executing the interpreter keeps it.
        own: i32,
    },
}

/// Installs both filters. They cannot be removed, and children inherit them.
///
/// # Errors
/// The kernel refuses, or this architecture has no filter.
pub(crate) fn apply(reach: KernelObjects) -> io::Result<()> {
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

/// Returns the refused calls: without rules a call is always refused, otherwise where one rule matches.
fn refused(reach: KernelObjects) -> io::Result<BTreeMap<i64, Vec<SeccompRule>>> {
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    refused.insert(
        libc::SYS_socketpair,
        vec![
            rule(&[(0, SeccompCmpOp::Ne, AF_UNIX)])?,
            // A datagram socket could be pointed at any address; both ends of a stream pair stay in the sandbox.
            rule(&[(1, SeccompCmpOp::MaskedEq(SOCKET_TYPE), SOCK_DGRAM)])?,
            rule(&[(1, SeccompCmpOp::MaskedEq(SOCKET_TYPE), SOCK_SEQPACKET)])?,
        ],
    );
    let mut clone = CLONE.iter().map(|flag| bit(0, *flag)).collect::<Result<Vec<_>, _>>()?;
    // Shared anonymous memory belongs to no process: all of it stays while one page is mapped, and only that page
    // is counted.
    refused.insert(libc::SYS_mmap, vec![rule(&[(3, SeccompCmpOp::MaskedEq(SHARED_MEMORY), SHARED_MEMORY)])?]);
    refused.insert(libc::SYS_ioctl, IOCTL.iter().map(|command| equal(1, *command)).collect::<Result<_, _>>()?);
    refused.insert(libc::SYS_fcntl, FCNTL.iter().map(|command| equal(1, *command)).collect::<Result<_, _>>()?);
    // Querying the personality is harmless; glibc calls prlimit64 for its own process (pid 0).
    refused.insert(libc::SYS_personality, vec![rule(&[(0, SeccompCmpOp::Ne, ASKING)])?]);
    refused.insert(libc::SYS_prlimit64, vec![rule(&[(0, SeccompCmpOp::Ne, 0)])?]);
    if let KernelObjects::Shared { signals_are_fenced, own } = reach {
        refused.extend(OF_OTHERS.iter().chain(OF_OTHERS_LEGACY).chain(HIDING).map(|call| (*call, Vec::new())));
        // All threads of a process must share their open files, so that inspecting one thread shows all files.
        clone.push(rule(&[(0, SeccompCmpOp::MaskedEq(CLONE_THREAD | CLONE_FILES), CLONE_THREAD)])?);
        refused.insert(libc::SYS_close_range, vec![bit(2, CLOSE_RANGE_UNSHARE)?]);
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
    refused.insert(libc::SYS_clone, clone);
    Ok(refused)
}

/// A rule that matches when all conditions hold: argument number, comparison, value. Only the lower 32 bits of an
/// argument are compared; the kernel also ignores the upper half of these arguments.
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

/// Opening read-only with truncation, which landlock takes for reading before its third version: the calls and the
/// position of their flags.
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
/// `MAP_SHARED` and `MAP_ANONYMOUS`.
const SHARED_MEMORY: u64 = 0x21;
const CLONE_THREAD: u64 = 0x1_0000;
const CLONE_FILES: u64 = 0x400;
const CLOSE_RANGE_UNSHARE: u64 = 2;
/// `CLONE_NEWNS`, `_NEWCGROUP`, `_NEWUTS`, `_NEWIPC`, `_NEWUSER`, `_NEWPID`, `_NEWNET`; and `CLONE_PARENT`, which
/// would make the new process a sibling of its creator.
const CLONE: [u64; 8] = [0x2_0000, 0x200_0000, 0x400_0000, 0x800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000, 0x8000];
/// `TIOCSTI` and `TIOCLINUX` inject input into a terminal; `FIOSETOWN` and `SIOCSPGRP` are `F_SETOWN`.
const IOCTL: [u64; 4] = [0x5412, 0x541c, 0x8901, 0x8902];
/// `F_SETOWN`, `F_SETSIG` and `F_SETOWN_EX` make an open file send a chosen signal to a chosen process.
const FCNTL: [u64; 3] = [8, 10, 15];

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

    /// Runs `what` under the filters, in a thread of its own because a filter applies to one thread.
    fn under<T: Send + 'static>(reach: KernelObjects, what: impl FnOnce() -> T + Send + 'static) -> T {
        let filtered = thread::spawn(move || {
            apply(reach).unwrap();
            what()
        });
        filtered.join().unwrap()
    }

    fn shared(signals_are_fenced: bool) -> KernelObjects {
        KernelObjects::Shared { signals_are_fenced, own: getpid().as_raw_nonzero().get() }
    }

    fn is_refused<T: std::fmt::Debug>(tried: io::Result<T>) {
        assert_eq!(tried.unwrap_err().raw_os_error(), Some(libc::EPERM));
    }

    /// Before kernel 6.12, landlock lets signals through.
    #[test]
    fn filter_confines_signals_without_landlock() {
        let parent = getppid().unwrap();
        assert!(test_kill_process(parent).is_ok(), "it can be reached without a filter");
        under(shared(false), move || {
            assert_eq!(test_kill_process(parent), Err(Errno::PERM));
            assert_eq!(test_kill_process(getpid()), Ok(()));
            assert_eq!(test_kill_current_process_group(), Ok(()));
        });
        under(shared(true), move || assert_eq!(test_kill_process(parent), Ok(())));
    }

    /// Before kernel 6.2, landlock takes opening with truncation for reading.
    #[test]
    fn readable_file_cannot_be_truncated() {
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
    fn only_stream_socket_pairs_are_allowed() {
        let directory = tempfile::tempdir().unwrap();
        for reach in [KernelObjects::Own, shared(true), shared(false)] {
            let path = directory.path().join("socket");
            under(reach, move || {
                is_refused(TcpListener::bind(("127.0.0.1", 0)));
                is_refused(UnixListener::bind(path));
                is_refused(UnixDatagram::pair());
                assert!(UnixStream::pair().is_ok());
            });
        }
    }
}
