// Package lines has what the programs of readers are given and what they print.
package lines

import (
	"encoding/json"
	"log"
	"os"
)

type Given struct {
	Bootstrap, Topic, Group string
	Count                   int
}

type Header [2]any

// A nil []byte is null in JSON, another one base64.
type Line struct {
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []Header `json:"headers"`
}

func Read() *Given {
	given := &Given{}
	Must(json.NewDecoder(os.Stdin).Decode(given))
	return given
}

func (line Line) Print() {
	Must(json.NewEncoder(os.Stdout).Encode(line))
}

func Must(err error) {
	if err != nil {
		log.Output(2, err.Error())
		os.Exit(1)
	}
}
