//! Projects after the end of one of their executions: what became ready is started at once. The sweep finds what is
//! missed here.

use longhaul_shared::domain::ProjectId;
use longhaul_store::StoreError;

use super::announce::announce;
use crate::deps::Deps;

/// Most projects that one run of the sweep's duty looks at.
const DUE: i64 = 200;

/// Starts what may start in a project, of which an execution ended. A failure is logged: it must not keep the other
/// projects waiting.
pub(super) async fn drive(deps: &Deps, project: ProjectId) {
    match deps.store.drive_project(project, deps.max_running_projects).await {
        Ok(started) => announce(deps, &started),
        Err(error) => tracing::warn!(project.id = %project, error = %error, "a project is left to the sweep"),
    }
}

/// Drives the projects that have signals, or whose deadline passed.
pub(super) async fn drive_due(deps: &Deps) -> Result<(), StoreError> {
    for project in deps.store.due_projects(DUE).await? {
        drive(deps, project).await;
    }
    Ok(())
}

/// Lets approved projects run where there is a place.
pub(super) async fn admit(deps: &Deps) -> Result<(), StoreError> {
    for tenant in deps.store.lines_with_room(deps.max_running_projects).await? {
        match deps.store.drive_line(tenant, deps.max_running_projects).await {
            Ok(started) => announce(deps, &started),
            Err(error) => {
                tracing::warn!(tenant.id = %tenant.0, error = %error, "a line of projects is left to the sweep")
            }
        }
    }
    Ok(())
}
