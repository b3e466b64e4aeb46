//! Runs a command with two private servers.

use std::path::Path;
use std::process::Command;

use crate::error::ServersError;
use crate::postgres::{PostgresOptions, PrivatePostgres};
use crate::redis::{PrivateRedis, RedisOptions};

/// Starts an empty PostgreSQL and Redis in temporary directories and runs `program` with `DATABASE_URL`, `REDIS_URL`
/// and the same two prefixed with `LONGHAUL_TEST_`. Stops both servers and returns the exit code; if a signal ended
/// the program, 128 plus its number, as in a shell.
///
/// # Errors
///
/// A server or the program cannot be started.
pub async fn with_servers(program: &Path, args: &[std::ffi::OsString]) -> Result<u8, ServersError> {
    let postgres = PrivatePostgres::start(PostgresOptions::scratch()).await?;
    let redis = PrivateRedis::start(RedisOptions::scratch()).await?;
    let mut command = Command::new(program);
    command.args(args).env("DATABASE_URL", postgres.url()).env("REDIS_URL", redis.url());
    command.env("LONGHAUL_TEST_DATABASE_URL", postgres.url()).env("LONGHAUL_TEST_REDIS_URL", redis.url());
    let status = tokio::process::Command::from(command)
        .status()
        .await
        .map_err(ServersError::io(format!("run {}", program.display())))?;
    redis.stop().await?;
    postgres.stop().await?;
    let code = status
        .code()
        .unwrap_or_else(|| 128 + std::os::unix::process::ExitStatusExt::signal(&status).unwrap_or_default());
    Ok(u8::try_from(code).unwrap_or(1))
}
