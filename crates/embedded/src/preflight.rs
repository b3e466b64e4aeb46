//! Checks that the private servers are installed, and names the command that installs them.

use std::fmt;
use std::path::Path;

use crate::binaries;

/// Operating systems with a known install command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Platform {
    /// Debian, Ubuntu and their kin: `apt-get`.
    Debian,
    /// macOS: Homebrew. The command is untested.
    MacOs,
    /// Any other system.
    Other,
}

/// The facts about a machine that decide. Built by [`Host::detect`] or, in tests, by hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    pub platform: Platform,
    /// True if this process runs as root, so that the command needs no `sudo`.
    pub root: bool,
    /// True if a usable PostgreSQL is installed.
    pub postgres: bool,
    /// True if Redis is installed.
    pub redis: bool,
}

impl Host {
    /// Inspects this machine. Runs only `postgres --version`, once for each candidate.
    #[must_use]
    pub fn detect() -> Self {
        let platform = if cfg!(target_os = "macos") {
            Platform::MacOs
        } else if Path::new("/usr/bin/apt-get").exists() {
            Platform::Debian
        } else {
            Platform::Other
        };
        Self {
            platform,
            root: rustix::process::geteuid().is_root(),
            postgres: !binaries::postgres_installs().is_empty(),
            redis: binaries::redis_server().is_some(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Package {
    /// PostgreSQL 15 or newer.
    Postgres,
    Redis,
}

/// The missing servers. Its text includes the install command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct MissingServers {
    /// At least one.
    pub packages: Vec<Package>,
    platform: Platform,
    root: bool,
}

/// Checks that both servers are installed.
///
/// # Errors
///
/// [`MissingServers`] if one is not installed.
pub fn preflight(host: &Host) -> Result<(), MissingServers> {
    let mut packages = Vec::new();
    if !host.postgres {
        packages.push(Package::Postgres);
    }
    if !host.redis {
        packages.push(Package::Redis);
    }
    if packages.is_empty() {
        return Ok(());
    }
    Err(MissingServers { packages, platform: host.platform, root: host.root })
}

impl MissingServers {
    /// The command that installs the missing servers; `None` on an unknown system.
    #[must_use]
    pub fn install_command(&self) -> Option<String> {
        let names = |postgres, redis| {
            let name = |package: &Package| match package {
                Package::Postgres => postgres,
                Package::Redis => redis,
            };
            self.packages.iter().map(name).collect::<Vec<&str>>().join(" ")
        };
        match self.platform {
            Platform::Debian => {
                let sudo = if self.root { "" } else { "sudo " };
                Some(format!(
                    "{sudo}apt-get install -y --no-install-recommends {}",
                    names("postgresql", "redis-server")
                ))
            }
            Platform::MacOs => Some(format!("brew install {}", names("postgresql@17", "redis"))),
            Platform::Other => None,
        }
    }
}

impl fmt::Display for MissingServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |package: &Package| match package {
            Package::Postgres => "PostgreSQL 15 or newer (initdb, pg_ctl and postgres)",
            Package::Redis => "Redis (redis-server)",
        };
        let missing = self.packages.iter().map(name).collect::<Vec<_>>().join(" and ");
        write!(f, "{missing} not found; ")?;
        match self.install_command() {
            Some(command) => write!(f, "install with:\n\n    {command}\n")?,
            None => write!(f, "install it with this system's package manager")?,
        }
        match self.platform {
            Platform::MacOs => write!(f, "\n(the Homebrew command is untested)"),
            Platform::Debian | Platform::Other => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(platform: Platform, root: bool, postgres: bool, redis: bool) -> Host {
        Host { platform, root, postgres, redis }
    }

    fn command(host: &Host) -> Option<String> {
        preflight(host).unwrap_err().install_command()
    }

    #[test]
    fn a_complete_machine_passes() {
        assert_eq!(preflight(&host(Platform::Other, false, true, true)), Ok(()));
    }

    #[test]
    fn preflight_names_only_missing_servers() {
        let text = "apt-get install -y --no-install-recommends";
        assert_eq!(command(&host(Platform::Debian, true, true, false)), Some(format!("{text} redis-server")));
        assert_eq!(command(&host(Platform::Debian, false, false, true)), Some(format!("sudo {text} postgresql")));
        assert_eq!(
            command(&host(Platform::Debian, true, false, false)),
            Some(format!("{text} postgresql redis-server"))
        );
    }

    #[test]
    fn unknown_system_gets_no_install_command() {
        let text = preflight(&host(Platform::MacOs, false, false, false)).unwrap_err().to_string();
        assert!(text.contains("brew install postgresql@17 redis") && text.contains("untested"), "{text}");
        assert_eq!(command(&host(Platform::Other, false, false, true)), None);
    }
}
