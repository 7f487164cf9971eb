package main

import (
	"context"

	"github.com/IBM/sarama"

	. "readers/lines"
)

func main() {
	given := Read()
	config := sarama.NewConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	group, err := sarama.NewConsumerGroup([]string{given.Bootstrap}, given.Group, config)
	Must(err)
	ctx, cancel := context.WithCancel(context.Background())
	lines := make(chan Line)
	go func() {
		for ; given.Count > 0; given.Count-- {
			(<-lines).Print()
		}
		cancel()
	}()
	for ctx.Err() == nil {
		Must(group.Consume(ctx, []string{given.Topic}, handler(lines)))
	}
	Must(group.Close())
}

type handler chan<- Line

func (handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (lines handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case record, open := <-claim.Messages():
			if !open {
				return nil
			}
			line := Line{Partition: record.Partition, Offset: record.Offset, Key: record.Key, Value: record.Value,
				Headers: []Header{}}
			for _, header := range record.Headers {
				line.Headers = append(line.Headers, Header{string(header.Key), header.Value})
			}
			select {
			case lines <- line:
				session.MarkMessage(record, "")
			case <-session.Context().Done():
				return nil
			}
		case <-session.Context().Done():
			return nil
		}
	}
}
