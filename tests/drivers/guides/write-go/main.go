// Calls the functions of docs/guide/write/go.md, each for an order of its own.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/lib/pq"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
)

func main() {
	url := os.Getenv("DATABASE_URL") + "?sslmode=disable"

	for number, mode := range []string{"cache_statement", "exec", "simple_protocol"} {
		ctx, order := context.Background(), int64(10*number)
		pool := value(pgxpool.New(ctx, url+"&default_query_exec_mode="+mode))
		fmt.Println("json", order+1, value(Pay(ctx, pool, order+1)))
		tx := value(pool.Begin(ctx))
		value(tx.Exec(ctx, "update orders set state = 'paid' where id = $1", order+2))
		fmt.Println("bytes", order+2, value(PublishBytes(ctx, tx, fmt.Sprint(order+2), []byte{0, 1, 0xff})))
		check(tx.Commit(ctx))
		pool.Close()
	}
	for order, simple := range map[int64]bool{3: false, 4: true} {
		db := value(gorm.Open(postgres.New(postgres.Config{DSN: url, PreferSimpleProtocol: simple}), &gorm.Config{}))
		fmt.Println("json", order, value(PayWithGorm(db, order)))
	}
	for order, parameters := range map[int64]string{5: "", 6: "&binary_parameters=yes"} {
		db := value(sql.Open("postgres", url+parameters))
		tx := value(db.Begin())
		value(tx.Exec("update orders set state = 'paid' where id = $1", order))
		payload := fmt.Sprintf(`{"id": %d, "state": "paid"}`, order)
		fmt.Println("json", order, value(PublishWithSQL(tx, order, payload)))
		check(tx.Commit())
	}
}

func value[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
