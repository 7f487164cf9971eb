-- Identifiers as the server quoted them: :table :columns
copy outbox.:table (:columns) from stdin (format binary)
