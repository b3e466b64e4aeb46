//! Escape attempts from inside the sandbox. The self-test at start must see all of them refused before anything is
//! served.

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket},
    os::{fd::AsFd as _, unix::net::UnixStream},
    path::Path,
    time::Duration,
};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit, test_kill_process};

use crate::setup::{Confinement, Targets};

const PATIENCE: Duration = Duration::from_secs(1);

/// Makes every attempt, writes those that succeeded to the channel as a JSON list, and ends.
pub(crate) fn run(targets: &Targets, confinement: &Confinement, work: &Path) -> io::Error {
    let mut escaped = Vec::new();
    let mut refused = |what: &str, got_through: bool| {
        if got_through {
            escaped.push(what.to_owned());
        }
    };
    refused("read a file of the machine", fs::read(&targets.canary).is_ok());
    refused("write beside it", fs::write(targets.canary.with_extension("written"), "x").is_ok());
    refused("read /etc/shadow", fs::read("/etc/shadow").is_ok());
    refused("reach a TCP port", TcpStream::connect_timeout(&loopback(targets.tcp), PATIENCE).is_ok());
    refused("send a UDP packet", send(targets.udp).is_ok());
    refused("connect to a socket of the machine", UnixStream::connect(&targets.socket).is_ok());
    let service = Pid::from_raw(targets.service);
    refused("signal the service", service.is_none_or(|service| test_kill_process(service).is_ok()));
    refused("read the service's environment", fs::read(format!("/proc/{}/environ", targets.service)).is_ok());
    refused("raise a limit", raise().is_ok());
    let own = work.join("probe");
    if let Err(error) = fs::write(&own, "x").and_then(|()| fs::remove_file(&own)) {
        refused(&format!("not write to its own directory, which it must: {error}"), true);
    }
    if let Confinement::Namespaces { proc, .. } = confinement {
        refused("see a /proc that is not its own", *proc != Path::new("/proc/self").exists());
        for (name, of_service) in targets.namespaces.iter().filter(|_| *proc) {
            let own = fs::read_link(format!("/proc/self/ns/{name}"));
            // A namespace that cannot be compared counts as shared.
            let shared = own.map_or(true, |own| own.to_string_lossy() == of_service.as_str());
            refused(&format!("share the {name} namespace of the service"), shared);
        }
        refused("have a process id of the machine's", rustix::process::getpid().as_raw_nonzero().get() > 16);
    }
    let told = serde_json::to_vec(&escaped).unwrap_or_default();
    match rustix::io::write(io::stdin().as_fd(), &told) {
        Ok(_) => io::Error::other("the probe has ended"),
        Err(error) => error.into(),
    }
}

fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn send(port: u16) -> io::Result<usize> {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?.send_to(b"x", loopback(port))
}

fn raise() -> io::Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum.map(|maximum| maximum + 1);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).map_err(io::Error::from)
}
