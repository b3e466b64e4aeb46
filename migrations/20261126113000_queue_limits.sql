-- A limit may group executions by their queue; a limit of 0 holds one.
alter table limit_rules drop constraint limit_rules_expression_check;
alter table limit_rules add constraint limit_rules_expression_check
    check (expression in ('tenant', 'definition', 'agent', 'queue') or expression ~ '^metadata\..') not valid;
alter table limit_rules validate constraint limit_rules_expression_check;
