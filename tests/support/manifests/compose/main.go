// Prints a project of Compose as JSON, with its defaults. What the specification does not know is an error.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

func run(name string) error {
	folder, err := filepath.Abs(filepath.Dir(name))
	if err != nil {
		return err
	}
	project, err := loader.LoadWithContext(context.Background(), types.ConfigDetails{
		WorkingDir:  folder,
		ConfigFiles: []types.ConfigFile{{Filename: name}},
	}, func(options *loader.Options) {
		options.SetProjectName("outbox-relay", true)
	})
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(project)
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: compose FILE")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
