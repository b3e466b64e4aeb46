-- Erases the texts of one ended execution, but for its steps: input, output, failure texts, metadata, what people
-- were asked and answered, the texts in its events, its files and its workspace. Ids, kinds, codes, times, counts and
-- hashes stay.
with ended as materialized (
    select id from executions where id = $1 and finished_at is not null
),
payload as (
    update execution_payloads p
    set input = 'null', output = case when output is not null then 'null'::json end, failure_summary = null,
        failure_detail = null, overrides = null, erased_at = longhaul_now()
    from ended where p.execution_id = ended.id
),
labels as (
    -- Keys of concurrency limits have values of the metadata.
    update executions e set metadata = '{}', slot_keys = null
    from ended where e.id = ended.id and (e.metadata <> '{}' or e.slot_keys is not null)
),
-- What nothing else names is removed by the sweep.
files as (
    delete from execution_files f using ended where f.execution_id = ended.id
),
workspaces as (
    delete from workspaces w using ended where w.execution_id = ended.id
),
changes as (
    delete from workspace_changes c using ended where c.execution_id = ended.id
),
-- Requests that continued its answer over a wire.
legs as (
    update wire_legs l set request = 'null' from ended where l.execution_id = ended.id
),
signals as (
    delete from signals s using ended where s.execution_id = ended.id
),
-- Answers that repeat a request of it.
answers as (
    update kept_answers k set body = null
    from ended where k.body is not null and k.subjects && array[ended.id::text]
),
leases as (
    update attempts a set failure_summary = null
    where a.execution_id = $1 and a.failure_summary is not null and exists (select from ended)
),
requests as (
    -- $2 is the tombstone of a body.
    update human_requests r
    set arguments = $2::bytea, shown = '', schema = null, reason = null, decided_by = null, decision_tool = case
            when decision_tool is not null then '' end,
        decision_body = case when decision_body is not null then $2::bytea end
    from ended where r.execution_id = ended.id
),
-- A quarantined execution cannot be retried without its input.
withdrawn as (
    update quarantine q set withdrawn_at = longhaul_now()
    from ended where q.execution_id = ended.id and q.released_as is null and q.withdrawn_at is null
),
told as (
    -- Members that are numbers, flags or names from closed sets stay.
    update events v
    set data = (
        select jsonb_object_agg(member.key, member.value) from jsonb_each(v.data) as member
        where jsonb_typeof(member.value) in ('number', 'boolean') or member.key = any ($3::text[])
    )
    where v.execution_id = $1 and v.data is not null and exists (select from ended)
)
select count(*) = 1 as "has_ended!" from ended
