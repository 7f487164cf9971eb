package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/cloudevents/sdk-go/v2/types"
	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

type received struct {
	ID          string `json:"id"`
	Source      string `json:"source"`
	Type        string `json:"type"`
	Subject     string `json:"subject"`
	Time        string `json:"time"`
	ContentType string `json:"content_type"`
	Schema      string `json:"schema"`
	Data        []byte `json:"data"`
	Attempt     int32  `json:"attempt"`
}

// printError tells the test; the relay gets status 200 all the same, and goes on.
func printError(format string, values ...any) {
	printLine(map[string]string{"error": fmt.Sprintf(format, values...)})
}

func printEvent(event cloudevents.Event) error {
	if err := event.Validate(); err != nil {
		return err
	}
	attempt, _ := types.ToInteger(event.Extensions()["outboxattempt"])
	printLine(received{event.ID(), event.Source(), event.Type(), event.Subject(), event.Time().UTC().Format(time.RFC3339Nano),
		event.DataContentType(), event.DataSchema(), append([]byte{}, event.Data()...), attempt})
	return nil
}

func receiveBatch(request *http.Request) {
	events, err := cloudevents.NewEventsFromHTTPRequest(request)
	for _, event := range events {
		if err == nil {
			err = printEvent(event)
		}
	}
	if err != nil {
		printError("%v", err)
	}
}

func serveEvents(secret string) {
	webhook, err := webhooks.NewWebhook(secret)
	if err != nil {
		log.Fatal(err)
	}
	protocol, err := cloudevents.NewHTTP()
	if err != nil {
		log.Fatal(err)
	}
	single, err := cloudevents.NewHTTPReceiveHandler(context.Background(), protocol,
		func(event cloudevents.Event) cloudevents.Result {
			if err := printEvent(event); err != nil {
				return cloudevents.NewHTTPResult(http.StatusBadRequest, "%v", err)
			}
			return cloudevents.ResultACK
		})
	if err != nil {
		log.Fatal(err)
	}
	handler := http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err == nil {
			err = webhook.Verify(body, request.Header)
		}
		if err != nil {
			printError("%v", err)
			return
		}
		request.Body = io.NopCloser(bytes.NewReader(body))
		if cehttp.IsHTTPBatch(request.Header) {
			receiveBatch(request)
			return
		}
		answer := httptest.NewRecorder()
		single.ServeHTTP(answer, request)
		if answer.Code >= http.StatusMultipleChoices {
			printError("status %d: %s: %s", answer.Code, answer.Body, body)
		}
	})
	go func() { log.Fatal(http.Serve(listen(), handler)) }()
	waitForEnd()
}
