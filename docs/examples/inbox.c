/* Charges each order once: the charge and the order's id are in one transaction of Postgres. */
#include <inbox.h>
#include <libpq-fe.h>
#include <signal.h>
#include <threads.h>

static tss_t databases; /* a connection a thread */

static bool well(PGresult *result)
{
	bool done = PQresultStatus(result) == PGRES_COMMAND_OK;
	PQclear(result);
	return done;
}

static bool charge(PGconn *database, const struct outbox_inbox_message *order)
{
	const char *values[] = {order->key, order->payload}; /* the customer, the amount */
	const int lengths[] = {(int)order->key_length, (int)order->payload_length};
	return well(PQexecParams(database, "insert into charge values ($1, $2::text::numeric)", 2,
	    NULL, values, lengths, (const int[]){1, 1}, 0));
}

static void handle(void *dsn, struct outbox_inbox *inbox,
    const struct outbox_inbox_message *const *orders, size_t count)
{
	struct outbox_inbox_end end = {orders[0]->ticket, OUTBOX_INBOX_RETRY, "the database", 0};
	PGconn *database = tss_get(databases);
	enum outbox_dedup_state state;
	if (!database)
		tss_set(databases, database = PQconnectdb(dsn));
	if (well(PQexec(database, "begin")) &&
	    outbox_inbox_take(inbox, database, orders, count, &state, NULL) &&
	    (state == OUTBOX_DEDUP_DONE || charge(database, orders[0])) &&
	    well(PQexec(database, "commit")))
		end.result = state == OUTBOX_DEDUP_NEW ? OUTBOX_INBOX_DONE : OUTBOX_INBOX_DUPLICATE;
	else
		PQreset(database); /* which rolls back */
	outbox_inbox_finish(inbox, &end, 1, NULL);
}

int main(int count, char **arguments) /* TOPIC DSN bootstrap.servers HOST:PORT … */
{
	const struct outbox_inbox_settings settings = {.group = "billing",
	    .kafka = (const char *const *)&arguments[3],
	    .topics = (const char *[]){arguments[1], NULL},
	    .handle = handle,
	    .context = arguments[2],
	    .take = true,
	    .dedup = "postgres name=billing window=24h"};
	sigset_t term;
	tss_create(&databases, (tss_dtor_t)PQfinish);
	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &term, NULL); /* threads inherit it */
	struct outbox_inbox *inbox = count > 4 ? outbox_inbox_open(&settings, NULL) : NULL;
	int ended = inbox ? sigwaitinfo(&term, NULL) : -1;
	outbox_inbox_close(inbox);
	return ended == SIGTERM ? 0 : 1;
}
