// Package given reads what the program of a driver shall write.
package given

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
)

type Given struct {
	Host, User, Database, Topic string
	Port                        int
	Pooled                      bool
	Text, JSON, JSONB           map[string]string
	Bytes                       map[string][]byte
}

const (
	Insert      = "insert into outbox.message (topic, key, payload) values ($1, $2, $3)"
	InsertBytes = "insert into outbox.message (topic, key_bytes, payload_bytes) values ($1, $2, $3)"
	Publish     = "select outbox.publish($1, $2, $3)"
	StateOf     = "select id, created_at from outbox.message_state_of($1)"
)

func Read() *Given {
	given := &Given{}
	Must(json.NewDecoder(os.Stdin).Decode(given))
	return given
}

func (given *Given) URL() string {
	return fmt.Sprintf("postgres://%s@%s:%d/%s?sslmode=disable", given.User, given.Host, given.Port, given.Database)
}

// Decoded is the object in a text. A driver takes other texts of JSON as they are: a string in Go is one.
func Decoded(text string) any {
	var object map[string]any
	if json.Unmarshal([]byte(text), &object) != nil || object == nil {
		return text
	}
	return object
}

func Must(err error) {
	if err != nil {
		log.Output(2, err.Error())
		os.Exit(1)
	}
}

func Value[T any](value T, err error) T {
	if err != nil {
		log.Output(2, err.Error())
		os.Exit(1)
	}
	return value
}
