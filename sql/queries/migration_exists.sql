-- Whether the schema was ever migrated.
select to_regclass('outbox.migration') is not null;
