//! Exit codes, part of the interface: scripts branch on them, `longhaul --help` lists them.

/// The outcome of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Success.
    Done,
    /// A server did not answer, or the command failed.
    Failure,
    /// Invalid flags, configuration or files. clap exits with the same code.
    Usage,
    /// PostgreSQL or Redis is not installed, or the system offers no confinement for the sandbox.
    MissingPrerequisites,
    /// The command succeeded, but the execution it waited for ended FAILED.
    ExecutionFailed,
    /// The execution, definition, agent or key does not exist.
    NotFound,
    /// The API refused the request: no or a wrong key, a missing scope, an invalid or conflicting request.
    Refused,
    /// Stopped by a second Ctrl-C.
    Interrupted,
    /// The exit code of a program that was run for the caller.
    Of(u8),
}

/// The part of `longhaul --help` that lists the exit codes.
pub const EXIT_CODES: &str = "Exit codes:
  0  done
  1  failure: something did not answer or went wrong
  2  usage: wrong flags, configuration or files
  3  prerequisites missing (PostgreSQL, Redis, confinement for the sandbox); the text says how to install them
  4  the execution that was waited for ended FAILED
  5  not found
  6  refused by the API: key, scope, invalid or conflicting request";

impl Exit {
    /// Its name in errors of `--json`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failure | Self::Of(_) => "failure",
            Self::Usage => "usage",
            Self::MissingPrerequisites => "missing_prerequisites",
            Self::ExecutionFailed => "execution_failed",
            Self::NotFound => "not_found",
            Self::Refused => "refused",
            Self::Interrupted => "interrupted",
        }
    }

    /// The process exit code.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failure => 1,
            Self::Usage => 2,
            Self::MissingPrerequisites => 3,
            Self::ExecutionFailed => 4,
            Self::NotFound => 5,
            Self::Refused => 6,
            // 128 + SIGINT, as in a shell.
            Self::Interrupted => 130,
            Self::Of(code) => code,
        }
    }
}
