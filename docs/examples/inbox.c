/* Charges each order once: the charge and the order's id stand in one transaction of Postgres. */
#include <inbox.h>
#include <libpq-fe.h>
#include <signal.h>
#include <stdio.h>
#include <threads.h>

static tss_t databases; /* a connection a thread */

static bool run(PGconn *database, const char *statement, int count, const char *const *values)
{
	PGresult *result = PQexecParams(database, statement, count, NULL, values, NULL, NULL, 0);
	bool done = PQresultStatus(result) == PGRES_COMMAND_OK;
	PQclear(result);
	return done;
}

/* The key is the customer, the payload the amount. */
static bool charge(PGconn *database, const struct outbox_inbox_message *order)
{
	char customer[100], amount[40];
	const char *values[] = {customer, amount};
	snprintf(customer, sizeof customer, "%.*s", (int)order->key_length, (char *)order->key);
	snprintf(amount, sizeof amount, "%.*s", (int)order->payload_length, (char *)order->payload);
	return run(database, "insert into charge values ($1, $2)", 2, values);
}

static void handle(void *context, struct outbox_inbox *inbox,
    const struct outbox_inbox_message *const *orders, size_t count)
{
	PGconn *database = tss_get(databases);
	struct outbox_inbox_end end = {orders[0]->ticket, OUTBOX_INBOX_RETRY, "the database", 0};
	enum outbox_dedup_state state;
	if (!database)
		tss_set(databases, database = PQconnectdb(context));
	else if (PQstatus(database) != CONNECTION_OK)
		PQreset(database);
	if (run(database, "begin", 0, NULL) &&
	    outbox_inbox_take(inbox, (struct pg_conn *)database, orders, count, &state, NULL) &&
	    (state == OUTBOX_DEDUP_DONE || charge(database, orders[0])) &&
	    run(database, "commit", 0, NULL))
		end.result = OUTBOX_INBOX_DONE;
	else
		run(database, "rollback", 0, NULL);
	outbox_inbox_finish(inbox, &end, 1, NULL);
}

int main(int count, char **arguments) /* BROKERS TOPIC DSN */
{
	const char *kafka[] = {"bootstrap.servers", arguments[1], NULL};
	const char *topics[] = {arguments[2], NULL};
	const struct outbox_inbox_settings settings = {.kafka = kafka,
	    .topics = topics,
	    .group = "billing",
	    .handle = handle,
	    .context = arguments[3],
	    .take = true,
	    .dedup = "postgres name=billing window=24h"};
	struct outbox_error error;
	sigset_t term;
	int got;
	tss_create(&databases, (tss_dtor_t)PQfinish);
	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &term, NULL); /* threads inherit it */
	struct outbox_inbox *inbox = count == 4 ? outbox_inbox_open(&settings, &error) : NULL;
	if (inbox)
		sigwait(&term, &got);
	outbox_inbox_close(inbox);
	return inbox ? 0 : 1;
}
