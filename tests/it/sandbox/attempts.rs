//! Escape attempts in Python, and their targets outside the sandbox.
//!
//! Each is a function body that returns a true value if it got through; an exception means that it was refused.
//! `outside` names the targets, `call` makes a system call.

use std::{
    fs,
    net::{Ipv4Addr, TcpListener, UdpSocket},
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            fs::{PermissionsExt, chown},
            net::{SocketAddr, UnixDatagram, UnixListener},
        },
    },
};

use rustix::process::geteuid;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::service::{SECRET, Service};

/// Content of the file that only the service's user may read.
pub(crate) const TREASURE: &str = "only the user of the service may know";

/// Targets outside, reachable by an unconfined process.
pub(crate) struct Outside {
    dir: TempDir,
    tcp: TcpListener,
    udp: UdpSocket,
    _stream: UnixListener,
    _datagram: UnixDatagram,
    _abstract: UnixListener,
    name: String,
}

impl Outside {
    pub(crate) fn new(service: &Service) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let open = fs::Permissions::from_mode(0o777);
        fs::set_permissions(dir.path(), open.clone()).unwrap();
        let own = dir.path().join("own");
        fs::create_dir(&own).unwrap();
        for (file, text) in [("treasure", TREASURE), ("victim", "as it was")] {
            fs::write(own.join(file), text).unwrap();
            fs::set_permissions(own.join(file), fs::Permissions::from_mode(0o600)).unwrap();
            if geteuid().is_root() {
                chown(own.join(file), Some(service.user), Some(service.user)).unwrap();
            }
        }
        fs::write(dir.path().join("readable"), "everybody may read this").unwrap();
        let stream = UnixListener::bind(dir.path().join("stream")).unwrap();
        let datagram = UnixDatagram::bind(dir.path().join("datagram")).unwrap();
        for socket in ["stream", "datagram"] {
            fs::set_permissions(dir.path().join(socket), open.clone()).unwrap();
        }
        let name = format!("longhaul-test-{}", uuid::Uuid::now_v7());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        Self {
            tcp: TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap(),
            udp: UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap(),
            _stream: stream,
            _datagram: datagram,
            _abstract: UnixListener::bind_addr(&address).unwrap(),
            name,
            dir,
        }
    }

    /// The targets as the code receives them.
    fn told(&self, service: &Service) -> Value {
        json!({
            "dir": self.dir.path(),
            "treasure": self.dir.path().join("own/treasure"),
            "victim": self.dir.path().join("own/victim"),
            "tcp": self.tcp.local_addr().unwrap().port(),
            "udp": self.udp.local_addr().unwrap().port(),
            "abstract": self.name,
            "service": service.pid(),
            "service_dir": service.dir(),
            "secret": SECRET,
            "treasured": TREASURE,
        })
    }

    /// Returns the state of everything outside, to detect changes.
    pub(crate) fn state(&self) -> Vec<String> {
        let mut state: Vec<String> = ["", "own"]
            .iter()
            .flat_map(|of| fs::read_dir(self.dir.path().join(of)).unwrap())
            .map(|entry| {
                let entry = entry.unwrap();
                let metadata = entry.metadata().unwrap();
                let text = fs::read_to_string(entry.path()).unwrap_or_default();
                let links = std::os::unix::fs::MetadataExt::nlink(&metadata);
                let changed = metadata.modified().unwrap();
                format!("{:?} {:o} {changed:?} {links} {text}", entry.file_name(), metadata.permissions().mode())
            })
            .collect();
        state.sort();
        state
    }
}

/// Returns the code of an attempt.
pub(crate) fn code(body: &str) -> String {
    let body: String = body.lines().map(|line| format!("    {line}\n")).collect();
    format!(
        "import ctypes, os, socket\nfrom pathlib import Path\n\
         outside = input\nlibc = ctypes.CDLL(None, use_errno=True)\n\
         def call(number, *arguments):\n    \
             got = libc.syscall(number, *arguments)\n    \
             if got < 0:\n        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))\n    \
             return True\n\
         def attempt():\n{body}\
         try:\n    got = attempt()\n    result = {{'through': bool(got), 'saw': repr(got)[:500]}}\n\
         except Exception as error:\n    result = {{'through': False, 'saw': repr(error)[:500]}}\n"
    )
}

/// Makes an attempt; returns true if it got through, and the answer. Panics if the code itself is broken.
pub(crate) async fn make(service: &Service, outside: &Outside, body: &str) -> (bool, Value) {
    let answer = service.python(&code(body), outside.told(service)).await;
    // An attempt that was killed counts as refused.
    let through = answer["result"]["through"].as_bool().unwrap_or(false);
    let broken = ["SyntaxError", "NameError", "IndentationError", "SandboxTimeout"];
    let told = answer.to_string();
    assert!(!broken.iter().any(|name| told.contains(name)), "the attempt is broken: {answer:#}");
    (through, answer)
}
