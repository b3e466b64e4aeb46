//! A project of which an execution ended, or which a person changed: its ready tasks start.

use longhaul_domain::ProjectId;
use longhaul_store::{StoreError, ends::Subject};

use crate::deps::Deps;

pub(super) async fn drive(deps: &Deps, project: &Subject) -> Result<(), StoreError> {
    if deps.store.forget_gone_project(project).await? {
        return Ok(());
    }
    deps.publisher.runnable(&deps.store.drive_project(ProjectId(project.id), deps.max_running_projects).await?);
    Ok(())
}
