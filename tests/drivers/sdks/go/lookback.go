package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"log"
	"net/http"
	"os"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	lookbackv1 "outbox-relay/lookback/v1"
)

// Times in milliseconds; what is 0 or empty is the library's default.
type settings struct {
	Secret      string `json:"secret"`
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
	ClientCA    string `json:"client_ca"`
	Age         int    `json:"age"`
	Grace       int    `json:"grace"`
	Idle        int    `json:"idle"`
	Streams     uint32 `json:"streams"`
	Delay       int    `json:"delay"`
}

type checker struct {
	lookbackv1.UnimplementedCheckerServer
	settings settings
	webhook  *webhooks.Webhook
}

var decisions = map[string]lookbackv1.Decision{
	"unknown":  lookbackv1.Decision_DECISION_UNKNOWN,
	"pending":  lookbackv1.Decision_DECISION_PENDING,
	"commit":   lookbackv1.Decision_DECISION_COMMIT,
	"rollback": lookbackv1.Decision_DECISION_ROLLBACK,
}

// The business type is the decision of all ids, or the name of a status.
func (checker *checker) Check(ctx context.Context, request *lookbackv1.CheckRequest) (*lookbackv1.CheckResponse, error) {
	if checker.webhook != nil {
		if err := checker.verify(ctx, request); err != nil {
			return nil, status.Error(codes.Unauthenticated, err.Error())
		}
	}
	_, limited := ctx.Deadline()
	ids, attempts := []string{}, []int32{}
	response := &lookbackv1.CheckResponse{}
	for _, id := range request.Ids {
		ids, attempts = append(ids, id.BizId), append(attempts, id.Attempt)
		response.Answers = append(response.Answers,
			&lookbackv1.CheckAnswer{BizId: id.BizId, Decision: decisions[request.BizType]})
	}
	printLine(map[string]any{"ids": ids, "attempts": attempts, "limited": limited})
	time.Sleep(time.Duration(checker.settings.Delay) * time.Millisecond)
	if request.BizType == "unavailable" {
		return nil, status.Error(codes.Unavailable, "the ledger is away")
	}
	return response, nil
}

// The relay signs the request as it sent it: a server that parsed it serializes it again.
func (checker *checker) verify(ctx context.Context, request *lookbackv1.CheckRequest) error {
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(request)
	if err != nil {
		return err
	}
	given, _ := metadata.FromIncomingContext(ctx)
	headers := http.Header{}
	for name, values := range given {
		for _, value := range values {
			headers.Add(name, value)
		}
	}
	return checker.webhook.Verify(body, headers)
}

// connections prints a line for each connection.
type connections struct{}

func (connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (connections) HandleRPC(context.Context, stats.RPCStats)                         {}
func (connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (connections) HandleConn(_ context.Context, event stats.ConnStats) {
	if _, begins := event.(*stats.ConnBegin); begins {
		printLine(map[string]bool{"connection": true})
	}
}

func (settings settings) options() []grpc.ServerOption {
	milliseconds := func(count int) time.Duration { return time.Duration(count) * time.Millisecond }
	options := []grpc.ServerOption{grpc.StatsHandler(connections{}), grpc.KeepaliveParams(keepalive.ServerParameters{
		MaxConnectionAge:      milliseconds(settings.Age),
		MaxConnectionAgeGrace: milliseconds(settings.Grace),
		MaxConnectionIdle:     milliseconds(settings.Idle)})}
	if settings.Streams > 0 {
		options = append(options, grpc.MaxConcurrentStreams(settings.Streams))
	}
	if settings.Certificate == "" {
		return options
	}
	certificate, err := tls.LoadX509KeyPair(settings.Certificate, settings.Key)
	if err != nil {
		log.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{certificate}}
	if settings.ClientCA != "" {
		authority, err := os.ReadFile(settings.ClientCA)
		if err != nil {
			log.Fatal(err)
		}
		config.ClientCAs = x509.NewCertPool()
		config.ClientCAs.AppendCertsFromPEM(authority)
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return append(options, grpc.Creds(credentials.NewTLS(config)))
}

func serveLookback(text string) {
	checker := &checker{}
	if err := json.Unmarshal([]byte(text), &checker.settings); err != nil {
		log.Fatal(err)
	}
	if checker.settings.Secret != "" {
		webhook, err := webhooks.NewWebhook(checker.settings.Secret)
		if err != nil {
			log.Fatal(err)
		}
		checker.webhook = webhook
	}
	server := grpc.NewServer(checker.settings.options()...)
	lookbackv1.RegisterCheckerServer(server, checker)
	go func() {
		if err := server.Serve(listen()); err != nil {
			log.Fatal(err)
		}
	}()
	waitForEnd()
	server.GracefulStop()
}
