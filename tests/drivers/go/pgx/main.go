// pgx in each of its query modes. Behind PgBouncer, which gives each transaction another session, nothing can be
// prepared for later.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	. "drivers/given"
)

var (
	background = context.Background()
	given      = Read()
)

func main() {
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe,
		pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		if given.Pooled && mode == pgx.QueryExecModeCacheStatement {
			continue
		}
		config := Value(pgx.ParseConfig(given.URL()))
		config.DefaultQueryExecMode = mode
		conn := Value(pgx.ConnectConfig(background, config))
		conn.TypeMap().RegisterDefaultPgType(map[string]any{}, "json") // for the modes that do not ask the server
		name := strings.ReplaceAll(mode.String(), " ", "-")
		untyped := mode == pgx.QueryExecModeExec || mode == pgx.QueryExecModeSimpleProtocol
		Must(pgx.BeginFunc(background, conn, func(tx pgx.Tx) error {
			writeAll(tx, name, untyped)
			return nil
		}))
		Must(pgx.BeginFunc(background, conn, func(tx pgx.Tx) error {
			writeReturning(tx, name)
			return nil
		}))
		if untyped {
			refuseTraps(conn, name)
		}
		Must(conn.Close(background))
	}
}

// untyped: the driver sends parameters as text of no type
func writeAll(tx pgx.Tx, mode string, untyped bool) {
	text := func(value string) any { return value }
	bytes := func(value []byte) any { return value }
	object := func(value string) any { return Decoded(value) }
	raw := func(value string) any { return json.RawMessage(value) }

	write(tx, "text", mode+"-insert", Insert, given.Text, text)
	write(tx, "text", mode+"-publish", Publish, given.Text, text)
	write(tx, "bytes", mode+"-bytes", "insert into outbox.message (topic, key, payload_bytes) values ($1, $2, $3)",
		given.Bytes, bytes)
	write(tx, "bytes", mode+"-publish-bytes", "select outbox.publish($1, $2, $3::bytea)", given.Bytes, bytes)
	write(tx, "json", mode+"-raw-message", Insert, given.JSON, raw)
	if untyped {
		write(tx, "json", mode+"-map", Insert, given.JSON, object)
	}
	write(tx, "json", mode+"-map-as-json", "select outbox.publish($1, $2, $3::json)", given.JSON, object)
	write(tx, "jsonb", mode+"-map-as-jsonb", "insert into outbox.message (topic, key, payload) values ($1, $2, $3::jsonb)",
		given.JSONB, object)
	if !untyped {
		write(tx, "text", mode+"-bytes-as-text", Insert, given.Text, func(value string) any { return []byte(value) })
	}

	for name, value := range given.Bytes {
		Value(tx.Exec(background, InsertBytes, given.Topic, []byte(key(mode+"-key-bytes", name)), value))
	}
	fmt.Println("bytes", mode+"-key-bytes")

	batch := &pgx.Batch{}
	for name, value := range given.Text {
		batch.Queue(Insert, given.Topic, key(mode+"-batch", name), value)
	}
	Must(tx.SendBatch(background, batch).Close())
	fmt.Println("text", mode+"-batch")

	var rows [][]any
	for name, value := range given.Text {
		rows = append(rows, []any{given.Topic, key(mode+"-copy", name), value})
	}
	Value(tx.CopyFrom(background, pgx.Identifier{"outbox", "message"}, []string{"topic", "key", "payload"},
		pgx.CopyFromRows(rows)))
	fmt.Println("text", mode+"-copy")

	rows = nil
	for name, value := range given.Bytes {
		rows = append(rows, []any{given.Topic, []byte(key(mode+"-copy-bytes", name)), value})
	}
	Value(tx.CopyFrom(background, pgx.Identifier{"outbox", "message"}, []string{"topic", "key_bytes", "payload_bytes"},
		pgx.CopyFromRows(rows)))
	fmt.Println("bytes", mode+"-copy-bytes")
}

func write[T any](tx pgx.Tx, word, way, statement string, values map[string]T, parameter func(T) any) {
	for name, value := range values {
		if _, err := tx.Exec(background, statement, given.Topic, key(way, name), parameter(value)); err != nil {
			Must(fmt.Errorf("%s %s: %w", way, name, err))
		}
	}
	fmt.Println(word, way)
}

func writeReturning(tx pgx.Tx, mode string) {
	var id, stateID int64
	var event string
	var created, stateCreated time.Time

	Must(tx.QueryRow(background, Insert+" returning id, event_id, created_at", given.Topic,
		key(mode+"-returning", "string"), given.Text["string"]).Scan(&id, &event, &created))
	Must(tx.QueryRow(background, StateOf, event).Scan(&stateID, &stateCreated))
	if id != stateID || !created.Equal(stateCreated) {
		Must(fmt.Errorf("returned %d %s, and the state has %d %s", id, created, stateID, stateCreated))
	}
	fmt.Println("returned", mode+"-returning")
}

// Without the type of a parameter pgx sends hexadecimal digits for bytes.
func refuseTraps(conn *pgx.Conn, mode string) {
	refuse(conn, mode+"-insert-bytes-as-text", Insert, []byte("{}"))
	refuse(conn, mode+"-insert-no-bytes-as-text", Insert, []byte{})
	refuse(conn, mode+"-publish-bytes-as-text", Publish, []byte("{}"))
}

func refuse(conn *pgx.Conn, way, statement string, payload any) {
	var refusal *pgconn.PgError
	_, err := conn.Exec(background, statement, given.Topic, key(way, "refused"), payload)
	if !errors.As(err, &refusal) {
		Must(fmt.Errorf("%s was not refused: %v", way, err))
	}
	fmt.Println("refused", way, refusal.ConstraintName)
}

func key(way, name string) string {
	return "pgx/" + way + "/" + name
}
