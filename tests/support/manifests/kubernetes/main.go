// Prints the objects of manifests of Kubernetes as a list of JSON. An unknown or repeated field is an error, and so is
// an object of a kind that the relay's manifests do not need.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
)

func decode(name string, decoder runtime.Decoder) ([]runtime.Object, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var found []runtime.Object
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		object, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("%s: document %d: %w", name, len(found)+1, err)
		}
		found = append(found, object)
	}
}

func run(names []string) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apps.AddToScheme, batch.AddToScheme, core.AddToScheme,
		policy.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	decoder := serializer.NewSerializerWithOptions(serializer.DefaultMetaFactory, scheme, scheme,
		serializer.SerializerOptions{Yaml: true, Strict: true})
	objects := []runtime.Object{}
	for _, name := range names {
		found, err := decode(name, decoder)
		if err != nil {
			return err
		}
		objects = append(objects, found...)
	}
	return json.NewEncoder(os.Stdout).Encode(objects)
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
