// Produces five records to a topic with franz-go, reads all in a group, and commits: franz SERVERS TOPIC COUNT
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	count, err := strconv.Atoi(os.Args[3])
	check(err)
	limited, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(os.Args[1], ",")...), kgo.DefaultProduceTopic(os.Args[2]),
		kgo.ConsumeTopics(os.Args[2]), kgo.ConsumerGroup("franz"), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	check(err)
	defer client.Close()
	for number := range 5 {
		record := kgo.StringRecord(fmt.Sprint("franz ", number))
		check(client.ProduceSync(limited, record).FirstErr())
	}
	for seen := 0; seen < count; {
		fetches := client.PollFetches(limited)
		check(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) { fmt.Println(string(record.Value)) })
		seen += fetches.NumRecords()
	}
	check(client.CommitUncommittedOffsets(limited))
}
