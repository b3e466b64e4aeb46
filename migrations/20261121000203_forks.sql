-- What a fork says differently from its agent: a system prompt, a model. Null for everything else.
alter table execution_payloads add column overrides json;
