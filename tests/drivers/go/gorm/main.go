// GORM with its PostgreSQL driver, which stands on pgx. Behind PgBouncer with PreferSimpleProtocol, as its users do.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	. "drivers/given"
)

var given = Read()

type Message struct {
	ID           int64     `gorm:"->;primaryKey"`
	EventID      string    `gorm:"default:(-)"`
	CreatedAt    time.Time `gorm:"->;default:(-)"`
	Topic        string    `gorm:"not null"`
	Key          *string
	Payload      *string
	KeyBytes     []byte
	PayloadBytes []byte
	Headers      map[string]any `gorm:"serializer:json"`
}

func (Message) TableName() string { return "outbox.message" }

// A payload that GORM's serializer encodes.
type Document struct {
	ID      int64  `gorm:"->;primaryKey"`
	Topic   string `gorm:"not null"`
	Key     string `gorm:"not null"`
	Payload any    `gorm:"serializer:json"`
}

func (Document) TableName() string { return "outbox.message" }

// The mistake: bytes in the column of texts.
type BytesAsText struct {
	ID      int64 `gorm:"->;primaryKey"`
	Topic   string
	Payload []byte
}

func (BytesAsText) TableName() string { return "outbox.message" }

func main() {
	for _, simple := range []bool{true, false} {
		if given.Pooled && !simple {
			continue
		}
		db := Value(gorm.Open(postgres.New(postgres.Config{DSN: given.URL(), PreferSimpleProtocol: simple}),
			&gorm.Config{Logger: logger.Discard}))
		name := map[bool]string{true: "simple", false: "extended"}[simple]
		Must(db.Transaction(func(tx *gorm.DB) error {
			writeAll(tx, name)
			return nil
		}))
		writeReturning(db, name)
		if simple {
			refuse(db, name)
		}
		Value(db.DB()).Close()
	}
}

func writeAll(tx *gorm.DB, name string) {
	var batch []Message
	for field, value := range given.Text {
		text, first, second := value, key(name+"-create", field), key(name+"-batch", field)
		Must(tx.Create(&Message{Topic: given.Topic, Key: &first, Payload: &text,
			Headers: map[string]any{"source": "shop"}}).Error)
		batch = append(batch, Message{Topic: given.Topic, Key: &second, Payload: &text})
	}
	Must(tx.CreateInBatches(batch, 5).Error)
	fmt.Printf("text %s-create\ntext %s-batch\n", name, name)

	for field, value := range given.Bytes {
		Must(tx.Create(&Message{Topic: given.Topic, KeyBytes: []byte(key(name+"-bytes", field)),
			PayloadBytes: value}).Error)
	}
	fmt.Println("bytes", name+"-bytes")

	for field, value := range given.JSON {
		var payload any
		itsKey, null := key(name+"-serializer", field), "null"
		Must(json.Unmarshal([]byte(value), &payload))
		if payload == nil { // the serializer makes NULL of it: a tombstone
			Must(tx.Create(&Message{Topic: given.Topic, Key: &itsKey, Payload: &null}).Error)
		} else {
			Must(tx.Create(&Document{Topic: given.Topic, Key: itsKey, Payload: payload}).Error)
		}
	}
	fmt.Println("json", name+"-serializer")

	for field, value := range given.Text {
		Must(tx.Exec("select outbox.publish(?, ?, ?)", given.Topic, key(name+"-publish", field), value).Error)
	}
	fmt.Println("text", name+"-publish")
}

func writeReturning(db *gorm.DB, name string) {
	var id int64
	var created time.Time
	itsKey, text := key(name+"-returning", "string"), given.Text["string"]
	message := Message{Topic: given.Topic, Key: &itsKey, Payload: &text}

	Must(db.Create(&message).Error)
	Must(db.Raw("select id, created_at from outbox.message_state_of(?)", message.EventID).Row().Scan(&id, &created))
	if message.ID != id || !message.CreatedAt.Equal(created) {
		Must(fmt.Errorf("returned %d %s, and the state has %d %s", message.ID, message.CreatedAt, id, created))
	}
	fmt.Println("returned", name+"-returning")
}

func refuse(db *gorm.DB, name string) {
	var refusal *pgconn.PgError
	err := db.Create(&BytesAsText{Topic: given.Topic, Payload: []byte("{}")}).Error
	if !errors.As(err, &refusal) {
		Must(fmt.Errorf("bytes as text were not refused: %v", err))
	}
	fmt.Println("refused", name+"-bytes-as-text", refusal.ConstraintName)
}

func key(way, name string) string {
	return "gorm/" + way + "/" + name
}
