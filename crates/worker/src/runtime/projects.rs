//! Projects after the end of one of their executions: what became ready is started at once. The sweep finds what is
//! missed here.

use longhaul_shared::domain::ProjectId;
use longhaul_store::StoreError;

use super::announce::announce;
use crate::deps::Deps;

/// Most projects that one run of the sweep's duty looks at.
const DUE: i64 = 200;

/// Starts what may start in a project, of which an execution ended.
pub(super) async fn drive(deps: &Deps, project: ProjectId) {
    if let Err(error) = try_drive(deps, project).await {
        tracing::warn!(project.id = %project, error = %error, "a project is left to the sweep");
    }
}

async fn try_drive(deps: &Deps, project: ProjectId) -> Result<(), StoreError> {
    announce(deps, &deps.store.drive_project(project, deps.max_running_projects).await?);
    Ok(())
}

/// Drives the projects that have signals, or whose deadline passed. One that fails does not hold up the others.
pub(super) async fn drive_due(deps: &Deps) -> Result<(), StoreError> {
    let mut failed = None;
    for project in deps.store.due_projects(DUE).await? {
        failed = failed.or(try_drive(deps, project).await.err());
    }
    failed.map_or(Ok(()), Err)
}

/// Lets approved projects run where there is a place, tenant by tenant.
pub(super) async fn admit(deps: &Deps) -> Result<(), StoreError> {
    let mut failed = None;
    for tenant in deps.store.lines_with_room(deps.max_running_projects).await? {
        match deps.store.drive_line(tenant, deps.max_running_projects).await {
            Ok(started) => announce(deps, &started),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(()), Err)
}
