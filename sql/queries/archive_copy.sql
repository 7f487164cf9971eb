-- The rows of a detached table. Identifiers as the server quoted them: :table :columns
copy outbox.:table (:columns) to stdout (format binary)
