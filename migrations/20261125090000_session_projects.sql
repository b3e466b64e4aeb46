-- The project that a session is about: its messages are told of the goal, the plan and the results.
alter table sessions add column project_id uuid;
alter type new_session add attribute project_id uuid;
