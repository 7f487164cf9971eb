// lib/pq under database/sql, with binary_parameters and without. Without it a statement outside a transaction takes
// two round trips, which PgBouncer gives to two sessions.
package main

import (
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/lib/pq"

	. "drivers/given"
)

var given = Read()

func main() {
	for name, parameters := range map[string]string{"text": "", "binary": "&binary_parameters=yes"} {
		db := Value(sql.Open("postgres", given.URL()+parameters))
		tx := Value(db.Begin())
		writeAll(tx, name)
		Must(tx.Commit())

		writeReturning(db, name)
		refuse(db, name+"-copy-bytes-as-text")
		Must(db.Close())
	}
}

func writeAll(tx *sql.Tx, name string) {
	text := func(value string) any { return value }
	bytes := func(value []byte) any { return value }

	write(tx, "text", name+"-insert", Insert, given.Text, text)
	write(tx, "text", name+"-publish", Publish, given.Text, text)
	write(tx, "bytes", name+"-bytes", "insert into outbox.message (topic, key, payload_bytes) values ($1, $2, $3)",
		given.Bytes, bytes)
	write(tx, "bytes", name+"-publish-bytes", "select outbox.publish($1, $2, $3::bytea)", given.Bytes, bytes)
	write(tx, "text", name+"-bytes-as-text", Insert, given.Text, func(value string) any { return []byte(value) })
	write(tx, "jsonb", name+"-jsonb", "select outbox.publish($1, $2, $3::jsonb)", given.JSONB, text)

	for field, value := range given.Bytes {
		Value(tx.Exec(InsertBytes, given.Topic, []byte(key(name+"-key-bytes", field)), value))
	}
	fmt.Println("bytes", name+"-key-bytes")

	prepared := Value(tx.Prepare(Insert))
	for field, value := range given.Text {
		Value(prepared.Exec(given.Topic, key(name+"-prepared", field), value))
	}
	Must(prepared.Close())
	fmt.Println("text", name+"-prepared")

	copyText := Value(tx.Prepare(pq.CopyInSchema("outbox", "message", "topic", "key", "payload")))
	for field, value := range given.Text {
		Value(copyText.Exec(given.Topic, key(name+"-copy", field), value))
	}
	Value(copyText.Exec())
	Must(copyText.Close())
	fmt.Println("text", name+"-copy")

	copyBytes := Value(tx.Prepare(pq.CopyInSchema("outbox", "message", "topic", "key_bytes", "payload_bytes")))
	for field, value := range given.Bytes {
		Value(copyBytes.Exec(given.Topic, []byte(key(name+"-copy-bytes", field)), value))
	}
	Value(copyBytes.Exec())
	Must(copyBytes.Close())
	fmt.Println("bytes", name+"-copy-bytes")
}

func write[T any](tx *sql.Tx, word, way, statement string, values map[string]T, parameter func(T) any) {
	for name, value := range values {
		if _, err := tx.Exec(statement, given.Topic, key(way, name), parameter(value)); err != nil {
			Must(fmt.Errorf("%s %s: %w", way, name, err))
		}
	}
	fmt.Println(word, way)
}

func writeReturning(db *sql.DB, name string) {
	var id, stateID int64
	var event string
	var created, stateCreated time.Time

	tx := Value(db.Begin())
	Must(tx.QueryRow(Insert+" returning id, event_id, created_at", given.Topic, key(name+"-returning", "string"),
		given.Text["string"]).Scan(&id, &event, &created))
	Must(tx.QueryRow(StateOf, event).Scan(&stateID, &stateCreated))
	Must(tx.Commit())
	if id != stateID || !created.Equal(stateCreated) {
		Must(fmt.Errorf("returned %d %s, and the state has %d %s", id, created, stateID, stateCreated))
	}
	fmt.Println("returned", name+"-returning")
}

// In a COPY, lib/pq does not know the types of the columns, and sends hexadecimal digits for bytes.
func refuse(db *sql.DB, way string) {
	var refusal *pq.Error

	tx := Value(db.Begin())
	copyText := Value(tx.Prepare(pq.CopyInSchema("outbox", "message", "topic", "key", "payload")))
	Value(copyText.Exec(given.Topic, key(way, "refused"), []byte("{}")))
	_, err := copyText.Exec()
	if !errors.As(err, &refusal) {
		Must(fmt.Errorf("%s was not refused: %v", way, err))
	}
	Must(tx.Rollback())
	fmt.Println("refused", way, refusal.Constraint)
}

func key(way, name string) string {
	return "libpq/" + way + "/" + name
}
