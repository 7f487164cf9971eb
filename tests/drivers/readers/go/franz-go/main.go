package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"

	. "readers/lines"
)

func main() {
	given := Read()
	client, err := kgo.NewClient(kgo.SeedBrokers(given.Bootstrap), kgo.ConsumerGroup(given.Group),
		kgo.ConsumeTopics(given.Topic))
	Must(err)
	for read := 0; read < given.Count; {
		fetches := client.PollFetches(context.Background())
		Must(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			line := Line{Partition: record.Partition, Offset: record.Offset, Key: record.Key, Value: record.Value,
				Headers: []Header{}}
			for _, header := range record.Headers {
				line.Headers = append(line.Headers, Header{header.Key, header.Value})
			}
			line.Print()
			read++
		})
	}
	client.Close()
}
