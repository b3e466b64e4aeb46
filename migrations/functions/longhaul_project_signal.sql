-- A process of the release before leaves signals of projects in `project_signals`: they become rows of `ends`.
create or replace function longhaul_project_signal() returns trigger
    language plpgsql volatile
    as $$
begin
    insert into ends (tenant_id, execution_id, event, project_id, occurred_at, reactions, next_at)
    select p.tenant_id, new.execution_id, 'project.changed', p.id, t.now, '{project}', t.now
    from projects p, (select longhaul_now() as now) t
    where p.id = new.project_id;
    return null;
end
$$;

create or replace trigger project_signals_become_ends before insert on project_signals
    for each row execute function longhaul_project_signal();

with old as (
    delete from project_signals returning *
)
insert into ends (tenant_id, execution_id, event, project_id, occurred_at, reactions, next_at)
select p.tenant_id, old.execution_id, 'project.changed', p.id, t.now, '{project}', t.now
from old join projects p on p.id = old.project_id, (select longhaul_now() as now) t;
