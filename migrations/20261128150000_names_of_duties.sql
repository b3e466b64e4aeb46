-- Names of the sweep's duties that say what each does to executions. The rows keep their due times. A worker of the
-- previous release inserts rows under the former names again and does these duties beside the others: harmless, for a
-- duty may run twice at a time at any rate. Such rows stay, and no later release reads them.
with names (former, name) as (
    values
        ('wake what is due', 'wake due executions'),
        ('end what is overdue', 'end overdue executions'),
        ('wake what is served', 'wake served executions'),
        ('end what nobody looks after', 'end overdue held executions'),
        ('wake what is decided', 'wake decided executions'),
        ('wake what is not held', 'wake released executions'),
        ('wake what has no open child', 'wake parents without open children'),
        ('wake what is not blocked', 'wake unblocked executions'),
        ('park what nobody serves', 'park unserved executions'),
        ('react again', 'retry reactions'),
        ('publish again', 'republish wake-ups'),
        ('tend the quarantine', 'update the quarantine'),
        ('tend model endpoints', 'update model endpoints'),
        ('tidy', 'maintain partitions and workers'),
        ('tidy slots and notes', 'delete idle slots and old notes'),
        ('count what waits', 'count waiting executions'),
        ('look for alarms', 'check for alarms'),
        ('bury and reap', 'reap dead workers')
),
renamed as (
    update sweep_duties d set duty = n.name from names n where d.duty = n.former
)
-- Items that a duty set aside are tried again under its name.
update set_aside s set what = n.name from names n where s.what = n.former;
