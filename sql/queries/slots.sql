select name, shards from outbox.slot order by name
