// The look-back from an application's side: franz-go and pgx. docs/guide/lookback.md shows its parts.
package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"
)

// snippet: send
type Lookback struct {
	kafka   *kgo.Client // its defaults: all acks, idempotent, keys placed as Java does
	bizType string
}

func (l *Lookback) Prepare(ctx context.Context, bizID, topic, key string, payload []byte) error {
	return l.say(ctx, "prepare", bizID, payload,
		kgo.RecordHeader{Key: "lookback-topic", Value: []byte(topic)},
		kgo.RecordHeader{Key: "lookback-key", Value: []byte(key)})
}

func (l *Lookback) Commit(ctx context.Context, bizID string) error {
	return l.say(ctx, "commit", bizID, nil)
}

func (l *Lookback) Rollback(ctx context.Context, bizID string) error {
	return l.say(ctx, "rollback", bizID, nil)
}

// Returns after Kafka's acknowledgement.
func (l *Lookback) say(ctx context.Context, op, bizID string, value []byte, more ...kgo.RecordHeader) error {
	record := &kgo.Record{Topic: "look_back_msg", Key: []byte(l.bizType + ":" + bizID), Value: value,
		Headers: append(more, kgo.RecordHeader{Key: "lookback-version", Value: []byte("1")},
			kgo.RecordHeader{Key: "lookback-op", Value: []byte(op)},
			kgo.RecordHeader{Key: "lookback-biz-type", Value: []byte(l.bizType)},
			kgo.RecordHeader{Key: "lookback-biz-id", Value: []byte(bizID)})}
	return l.kafka.ProduceSync(ctx, record).FirstErr()
}

// end

// snippet: work
// Call it after the prepare. The work refuses by any error that is not of the database.
func (l *Lookback) InTransaction(ctx context.Context, db *pgxpool.Pool, bizID string, work func(pgx.Tx) error) error {
	tx, err := db.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	if _, err = tx.Exec(ctx, "select lookback_begin($1, $2)", l.bizType, bizID); err != nil {
		var told *pgconn.PgError
		if errors.As(err, &told) && told.Code == "LB002" { // committed before
			return errors.Join(err, l.Commit(ctx, bizID))
		}
		return err
	}
	if err = work(tx); err != nil {
		var told *pgconn.PgError
		if !errors.As(err, &told) && tx.Rollback(ctx) == nil {
			return errors.Join(err, l.Rollback(ctx, bizID))
		}
		return err
	}
	if err = tx.Commit(ctx); err != nil { // it may have committed: the relay asks
		return err
	}
	return l.Commit(ctx, bizID)
}

// end

// snippet: verify
// Standard Webhooks: the request is recent, and one signature is of our secret (whsec_…).
func isSigned(secret string, headers http.Header, body []byte) bool {
	sent, err := strconv.ParseInt(headers.Get("webhook-timestamp"), 10, 64)
	if err != nil || time.Since(time.Unix(sent, 0)).Abs() > 5*time.Minute {
		return false
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return false
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%d.", headers.Get("webhook-id"), sent)
	mac.Write(body)
	ours := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	for _, one := range strings.Fields(headers.Get("webhook-signature")) {
		if hmac.Equal([]byte(ours), []byte(one)) {
			return true
		}
	}
	return false
}

// end

// snippet: answer
type asked struct {
	BizType string  `json:"biz_type"`
	BizID   string  `json:"biz_id"`
	IDs     []asked `json:"ids"`
}

type answer struct {
	BizID    string `json:"biz_id"`
	Decision string `json:"decision"`
}

func answerChecks(db *pgxpool.Pool, secret string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var question asked
		var ids []string
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil || !isSigned(secret, r.Header, body) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if json.Unmarshal(body, &question) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		for _, one := range append(question.IDs, question) { // one id or several
			if one.BizID != "" {
				ids = append(ids, one.BizID)
			}
		}
		rows, _ := db.Query(r.Context(), "select biz_id, decision from lookback_check($1, $2)",
			question.BizType, ids)
		answers, err := pgx.CollectRows(rows, pgx.RowToStructByPos[answer])
		if err != nil || len(answers) == 0 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if question.IDs != nil {
			json.NewEncoder(w).Encode(map[string]any{"answers": answers})
		} else {
			json.NewEncoder(w).Encode(answers[0])
		}
	}
}

// end

// One that is committed, one that is refused, one that is prepared and no more.
func take(ctx context.Context, lookback *Lookback, db *pgxpool.Pool) error {
	for _, id := range []string{"good", "bad", "left"} {
		if err := lookback.Prepare(ctx, id, "orders", lookback.bizType, []byte("of "+id)); err != nil {
			return err
		}
	}
	insert := func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "insert into work values (1)")
		return err
	}
	if err := lookback.InTransaction(ctx, db, "good", insert); err != nil {
		return err
	}
	refused := errors.New("refused")
	err := lookback.InTransaction(ctx, db, "bad", func(tx pgx.Tx) error {
		return errors.Join(insert(tx), refused)
	})
	if err == nil {
		return errors.New("what was refused is done")
	}
	return nil
}

// send SERVERS DSN TYPE, or serve PORT DSN SECRET: see tests/integration/test_guide.py
func main() {
	ctx := context.Background()
	db, err := pgxpool.New(ctx, os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	if os.Args[1] == "serve" {
		log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[2], answerChecks(db, os.Args[4])))
	}
	kafka, err := kgo.NewClient(kgo.SeedBrokers(os.Args[2]))
	if err != nil {
		log.Fatal(err)
	}
	defer kafka.Close()
	if err = take(ctx, &Lookback{kafka, os.Args[4]}, db); err != nil {
		log.Fatal(err)
	}
}
