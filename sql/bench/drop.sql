drop schema if exists outbox cascade
