vacuum (analyze) outbox.message
