/*
 * Charges each order of a list in Redis once: BLMOVE, claim, charge and done, LREM.
 *
 *   ./redis_queue 127.0.0.1 6379 orders billing-1 dbname=shop \
 *       'redis url=redis://127.0.0.1 name=billing lease=30s'
 *   redis-cli LPUSH orders 'order-42 19.99'
 *
 * BLMOVE moves an order from the queue to this consumer's own list, orders:processing:billing-1, in
 * one step, and LREM removes it there only after the charge is committed. So an order is in a list
 * until it is charged, whoever dies. Consumers move the orders of dead ones back to the queue.
 */
#include <claims.h>
#include <hiredis/hiredis.h>
#include <libpq-fe.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { SWEEP_S = 2, PAUSE_US = 100000 };

enum outcome { CHARGED, AGAIN, REFUSED };

struct order {
	const char *text; /* the entry: id, a blank, amount */
	size_t length, id_length;
};

struct consumer {
	redisContext *redis;
	struct outbox_claims *claims;
	PGconn *database;
	const char *queue, *name;
};

/*
 * One statement is one transaction: the database has the id of the order and its charge, or
 * neither. A copy of an order inserts no row.
 */
static const char charge_once[] =
    "insert into charge select convert_from($1, 'UTF8'), $2::text::numeric where "
    "(outbox.processed_take('billing', array[$1], array[null::timestamptz], "
    "interval '24 hours'))[1]";

/* Moves an entry, if it is still in the list: somebody else may have moved it meanwhile. */
static const char move_entry[] =
    "if redis.call('LREM', KEYS[1], 1, ARGV[1]) == 1 then redis.call('LPUSH', KEYS[2], ARGV[1]) "
    "end return redis.status_reply('OK')";

static volatile sig_atomic_t ended;

static void on_sigterm(int number)
{
	ended = number;
}

/* NULL: Redis is away, or refuses the command. Free the reply with freeReplyObject. */
static redisReply *ask_redis(struct consumer *consumer, const char *format, ...)
{
	va_list words;
	va_start(words, format);
	redisReply *reply = redisvCommand(consumer->redis, format, words);
	va_end(words);
	if (reply && reply->type != REDIS_REPLY_ERROR)
		return reply;

	fprintf(stderr, "Redis: %s\n", reply ? reply->str : consumer->redis->errstr);
	if (reply)
		freeReplyObject(reply);
	return NULL;
}

static bool is_well(redisReply *reply)
{
	if (reply)
		freeReplyObject(reply);
	return reply;
}

/* --- one order ------------------------------------------------------------------------------ */

static struct order order_of(const redisReply *entry)
{
	struct order order = {.text = entry->str, .length = entry->len};
	const char *blank = memchr(order.text, ' ', order.length);
	order.id_length = blank ? (size_t)(blank - order.text) : 0;
	return order;
}

/* SQLSTATE class 22: the amount is no number, and never will be. All else may pass next time. */
static enum outcome charge_order(PGconn *database, const struct order *order)
{
	const char *values[] = {order->text, order->text + order->id_length + 1};
	const int lengths[] = {(int)order->id_length, (int)(order->length - order->id_length - 1)};
	PGresult *result = PQexecParams(database, charge_once, 2, (const Oid[]){17, 25}, values,
	    lengths, (const int[]){1, 1}, 0); /* bytea and text */
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	bool refused = state && strncmp(state, "22", 2) == 0;
	enum outcome outcome = PQresultStatus(result) == PGRES_COMMAND_OK ? CHARGED
			       : refused                                  ? REFUSED
									  : AGAIN;

	if (outcome != CHARGED)
		fprintf(stderr, "the database: %s", PQresultErrorMessage(result));
	if (PQstatus(database) != CONNECTION_OK)
		PQreset(database);
	PQclear(result);
	return outcome;
}

/*
 * A shop may send an order twice. The claim keeps a second consumer from the order while this one
 * works on it; the library renews it, however long that takes.
 */
static enum outcome handle_order(struct consumer *consumer, const struct order *order)
{
	struct outbox_claim claim;
	bool taken;
	struct outbox_error error;
	if (!outbox_claims_take(
		consumer->claims, order->text, order->id_length, &claim, &taken, &error)) {
		fprintf(stderr, "%s\n", error.message);
		return error.kind == OUTBOX_REJECT ? REFUSED : AGAIN; /* no id, or too long */
	}
	if (!taken)
		return AGAIN; /* its consumer works on it, or died less than a lease ago */

	enum outcome outcome = charge_order(consumer->database, order);
	/* A release that fails costs nothing but time: the id is free after the lease. */
	outbox_claims_release(consumer->claims, &claim, NULL);
	return outcome;
}

/* --- the lists ------------------------------------------------------------------------------ */

/* Removes the order from this consumer's list, or moves it: to the queue, or to QUEUE:dead. */
static bool end_order(struct consumer *consumer, const struct order *order, enum outcome outcome)
{
	if (outcome == CHARGED)
		return is_well(ask_redis(consumer, "LREM %s:processing:%s 1 %b", consumer->queue,
		    consumer->name, order->text, order->length));
	if (outcome == AGAIN)
		usleep(PAUSE_US); /* with an empty queue it would come again at once */
	return is_well(ask_redis(consumer, "EVAL %s 2 %s:processing:%s %s%s %b", move_entry,
	    consumer->queue, consumer->name, consumer->queue, outcome == AGAIN ? "" : ":dead",
	    order->text, order->length));
}

/* Waits up to a second for an order. False: Redis is away. */
static bool take_order(struct consumer *consumer)
{
	redisReply *entry = ask_redis(consumer, "BLMOVE %s %s:processing:%s RIGHT LEFT 1",
	    consumer->queue, consumer->queue, consumer->name);
	bool well = entry;
	if (entry && entry->type == REDIS_REPLY_STRING) {
		const struct order order = order_of(entry);
		well = end_order(consumer, &order, handle_order(consumer, &order));
	}
	is_well(entry);
	return well;
}

/*
 * A consumer holds the claim while it works on the order. If the claim is free, the owner of the
 * list is dead, or about to claim or to remove the order. In these cases the queue has the order
 * once more, and it is charged once all the same.
 */
static bool recover_order(struct consumer *consumer, const char *owner, const redisReply *entry)
{
	const struct order order = order_of(entry);
	struct outbox_claim claim;
	struct outbox_error error;
	bool taken = false;
	if (!outbox_claims_take(
		consumer->claims, order.text, order.id_length, &claim, &taken, &error)) {
		if (error.kind != OUTBOX_REJECT)
			return true; /* the next sweep tries again */
	} else if (!taken)
		return true;

	bool well = is_well(ask_redis(consumer, "EVAL %s 2 %s:processing:%s %s %b", move_entry,
	    consumer->queue, owner, consumer->queue, order.text, order.length));
	if (taken)
		outbox_claims_release(consumer->claims, &claim, NULL);
	return well;
}

/* Each consumer writes its name into the set QUEUE:consumers, and looks at the lists of all. */
static bool sweep_lists(struct consumer *consumer)
{
	redisReply *names = ask_redis(consumer, "SMEMBERS %s:consumers", consumer->queue);
	bool well = names;
	for (size_t i = 0; well && i < names->elements; i++) {
		const char *owner = names->element[i]->str;
		redisReply *entries =
		    ask_redis(consumer, "LRANGE %s:processing:%s 0 -1", consumer->queue, owner);
		well = entries;
		for (size_t j = 0; well && j < entries->elements; j++)
			well = recover_order(consumer, owner, entries->element[j]);
		is_well(entries);
	}
	is_well(names);
	return well;
}

static void serve_queue(struct consumer *consumer, const char *host, int port)
{
	const struct timeval patience = {.tv_sec = 5}; /* longer than BLMOVE waits */
	time_t swept = 0;
	consumer->redis = redisConnectWithTimeout(host, port, patience);
	redisSetTimeout(consumer->redis, patience);
	bool well =
	    is_well(ask_redis(consumer, "SADD %s:consumers %s", consumer->queue, consumer->name));
	while (well && !ended) {
		if (time(NULL) >= swept + SWEEP_S) {
			well = sweep_lists(consumer);
			swept = time(NULL);
		}
		well = well && take_order(consumer);
	}
	redisFree(consumer->redis);
}

int main(int count, char **arguments) /* HOST PORT QUEUE NAME DSN CLAIMS */
{
	struct outbox_error error;
	if (count != 7) {
		fprintf(stderr, "usage: redis_queue HOST PORT QUEUE NAME DSN CLAIMS\n");
		return 1;
	}
	struct consumer consumer = {.queue = arguments[3], .name = arguments[4]};
	consumer.database = PQconnectdb(arguments[5]);

	signal(SIGTERM, on_sigterm);
	while (!ended) {
		if (consumer.claims || (consumer.claims = outbox_claims_open(arguments[6], &error)))
			serve_queue(&consumer, arguments[1], (int)strtol(arguments[2], NULL, 10));
		else if (fprintf(stderr, "%s\n", error.message), error.kind != OUTBOX_RETRY)
			break; /* the line is wrong */
		if (!ended)
			sleep(1); /* until the server is back */
	}

	outbox_claims_close(consumer.claims);
	PQfinish(consumer.database);
	return ended ? 0 : 1;
}
