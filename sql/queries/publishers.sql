select name, shards from outbox.publisher order by name
