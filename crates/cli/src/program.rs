//! A program that runs in the place of this one: it has the same terminal, gets the same signals, and its exit code
//! becomes this one's.

use std::{
    ffi::OsString,
    future::poll_fn,
    io::{self, IsTerminal},
    os::unix::process::ExitStatusExt,
    process::ExitStatus,
    task::Poll,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    process::{Child, Command},
    signal::unix::{self, SignalKind},
};

/// End of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Exit code, or 128 plus the number of the signal that ended the program, as in a shell.
    pub code: u8,
    /// True if this process was told to end meanwhile.
    pub is_told_to_end: bool,
}

/// The signals of this process. As long as this exists, they do not end the process.
pub struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// # Errors
    /// The system refuses a handler.
    pub fn catch() -> io::Result<Self> {
        let kinds = [
            (Signal::INT, SignalKind::interrupt()),
            (Signal::TERM, SignalKind::terminate()),
            (Signal::HUP, SignalKind::hangup()),
            (Signal::QUIT, SignalKind::quit()),
            (Signal::USR1, SignalKind::user_defined1()),
            (Signal::USR2, SignalKind::user_defined2()),
        ];
        let caught = kinds.into_iter().map(|(signal, kind)| Ok((signal, unix::signal(kind)?)));
        caught.collect::<io::Result<_>>().map(Self)
    }

    async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            let mut signals = self.0.iter_mut();
            let came = signals.find_map(|(signal, stream)| stream.poll_recv(context).is_ready().then_some(*signal));
            came.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Waits for `delay`. Returns false if this process was told to end before.
    pub async fn sleep(&mut self, delay: Duration) -> bool {
        let over = tokio::time::sleep(delay);
        tokio::pin!(over);
        loop {
            tokio::select! {
                () = &mut over => return true,
                signal = self.next() => if ends(signal) { return false },
            }
        }
    }
}

/// Runs a program to its end with the variables set in its environment, and others removed; passes signals on.
///
/// # Errors
/// The program cannot be started.
pub async fn run(
    command: &[OsString],
    set: &[(&str, String)],
    removed: &[&str],
    signals: &mut Signals,
) -> io::Result<Ended> {
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut started = Command::new(program);
    started.args(arguments).envs(set.iter().map(|(name, value)| (name, value)));
    for name in removed {
        started.env_remove(name);
    }
    let mut child = started.spawn()?;
    let mut is_told_to_end = false;
    loop {
        tokio::select! {
            status = child.wait() => return Ok(Ended { code: code_of(status?), is_told_to_end }),
            signal = signals.next() => {
                is_told_to_end |= ends(signal);
                pass_on(signal, &child);
            }
        }
    }
}

fn pass_on(signal: Signal, child: &Child) {
    // A terminal sends these to all processes in its foreground, the program included.
    if matches!(signal, Signal::INT | Signal::QUIT) && io::stdin().is_terminal() {
        return;
    }
    let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    if let Some(pid) = pid {
        // It fails if the program has just ended, which the caller sees.
        let _ = kill_process(pid, signal);
    }
}

fn ends(signal: Signal) -> bool {
    matches!(signal, Signal::INT | Signal::TERM | Signal::HUP | Signal::QUIT)
}

fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    u8::try_from(code).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn shell(script: &str) -> u8 {
        let mut signals = Signals::catch().unwrap();
        let command = ["sh", "-c", script].map(OsString::from);
        let set = [("LONGHAUL_TEST_SET", "a b".to_owned())];
        run(&command, &set, &["PATH"], &mut signals).await.unwrap().code
    }

    #[tokio::test]
    async fn exit_code_is_that_of_the_program() {
        assert_eq!(shell("exit 7").await, 7);
        assert_eq!(shell("kill -9 $$").await, 137);
        assert_eq!(shell("test \"$LONGHAUL_TEST_SET\" = 'a b'").await, 0);
    }

    #[tokio::test]
    async fn absent_program_is_an_error() {
        let mut signals = Signals::catch().unwrap();
        let command = ["/nonexistent/program".into()];
        assert_eq!(run(&command, &[], &[], &mut signals).await.unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(run(&[], &[], &[], &mut signals).await.is_err());
    }
}
