/*
 * Charges each order of a RabbitMQ queue once: claim, charge, done, acknowledge.
 *
 *   ./rabbitmq amqp://guest:guest@127.0.0.1 orders dbname=shop \
 *       'redis url=redis://127.0.0.1 name=billing lease=30s'
 *
 * An order is a message with the property message_id and a number as its body. RabbitMQ delivers it
 * again if the consumer or the broker dies before the acknowledgement, and a shop may send it
 * twice.
 */
#include <amqp.h>
#include <amqp_tcp_socket.h>
#include <claims.h>
#include <dedup.h>
#include <libpq-fe.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum { ORDERS = 1, MOVES = 2 }; /* channels; the second one is transactional */
enum { HEARTBEAT_S = 30, PAUSE_US = 100000 };

enum outcome { CHARGED, AGAIN, REFUSED };

struct order {
	amqp_bytes_t id, amount;
};

struct queue {
	const char *name;
	char dead[256]; /* NAME.dead has the orders that can never be charged, for a person */
};

struct billing {
	struct outbox_claims *claims;
	struct outbox_dedup *dedup;
	PGconn *database;
};

static volatile sig_atomic_t ended;

static void on_sigterm(int number)
{
	ended = number;
}

/* --- one order ------------------------------------------------------------------------------ */

/* SQLSTATE class 22: the amount is no number, and never will be. All else may pass next time. */
static bool is_well(PGresult *result, enum outcome *outcome)
{
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	bool well = PQresultStatus(result) == PGRES_COMMAND_OK;
	if (!well) {
		fprintf(stderr, "the database: %s", PQresultErrorMessage(result));
		*outcome = state && strncmp(state, "22", 2) == 0 ? REFUSED : AGAIN;
	}
	PQclear(result);
	return well;
}

static bool charge(PGconn *database, const struct order *order, enum outcome *outcome)
{
	const char *values[] = {order->id.bytes, order->amount.bytes};
	const int lengths[] = {(int)order->id.len, (int)order->amount.len};
	return is_well(PQexecParams(database, "insert into charge values ($1, $2::text::numeric)",
			   2, NULL, values, lengths, (const int[]){1, 1}, 0),
	    outcome);
}

/*
 * The charge and the id of the order are in one transaction. Whenever this process dies, the
 * database has both, and the next delivery is a copy, or neither, and the next delivery charges.
 */
static enum outcome charge_once(
    struct billing *billing, const struct outbox_claim *claim, const struct order *order)
{
	const struct outbox_dedup_id id = {
	    .id = order->id.bytes, .length = order->id.len, .time_ms = -1, .offset = -1};
	enum outbox_dedup_state state;
	struct outbox_error error = {.message = ""};
	enum outcome outcome = AGAIN;

	if (is_well(PQexec(billing->database, "begin"), &outcome) &&
	    outbox_dedup_take(billing->dedup, billing->database, &id, 1, &state, &error) &&
	    (state == OUTBOX_DEDUP_DONE || charge(billing->database, order, &outcome)) &&
	    outbox_claims_check(billing->claims, claim, &error) &&
	    is_well(PQexec(billing->database, "commit"), &outcome))
		return CHARGED;

	if (error.message[0])
		fprintf(stderr, "%s\n", error.message);
	PQreset(billing->database); /* rolls back, and connects again if the server was away */
	return outcome;
}

/*
 * The claim keeps a second consumer from the order while this one works on it. That happens: the
 * broker delivers an order again if a charge takes longer than the heartbeats allow, since
 * librabbitmq sends them inside of its calls only.
 */
static enum outcome handle_order(struct billing *billing, const struct order *order)
{
	struct outbox_claim claim;
	bool taken;
	struct outbox_error error;
	if (!outbox_claims_take(
		billing->claims, order->id.bytes, order->id.len, &claim, &taken, &error)) {
		fprintf(stderr, "%s\n", error.message);
		return error.kind == OUTBOX_REJECT ? REFUSED : AGAIN; /* no id */
	}
	if (!taken)
		return AGAIN; /* its consumer works on it, or died less than a lease ago */

	enum outcome outcome = charge_once(billing, &claim, order);
	/* A release that fails costs nothing but time: the id is free after the lease. */
	outbox_claims_release(billing->claims, &claim, NULL);
	return outcome;
}

/* --- the queue ------------------------------------------------------------------------------ */

static void tell_failure(amqp_rpc_reply_t reply)
{
	const amqp_channel_close_t *close = reply.reply.decoded; /* as amqp_connection_close_t */
	if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION && close)
		fprintf(stderr, "RabbitMQ: %.*s\n", (int)close->reply_text.len,
		    (char *)close->reply_text.bytes);
	else if (reply.reply_type == AMQP_RESPONSE_NORMAL) /* not of a call that has a reply */
		fprintf(stderr, "RabbitMQ: the connection was lost\n");
	else
		fprintf(stderr, "RabbitMQ: %s\n", amqp_error_string2(reply.library_error));
}

/*
 * Publishes the order at the end of another queue, or of the same one, and returns after the broker
 * has it. If this process dies before the acknowledgement, the order is in both.
 */
static bool move_order(amqp_connection_state_t broker, const char *to, amqp_message_t *order)
{
	/* The broker refuses an order in the name of another user than ours. */
	order->properties._flags &= ~(amqp_flags_t)AMQP_BASIC_USER_ID_FLAG;
	return amqp_basic_publish(broker, MOVES, amqp_empty_bytes, amqp_cstring_bytes(to), false,
		   false, &order->properties, order->body) == AMQP_STATUS_OK &&
	       amqp_tx_commit(broker, MOVES);
}

/* Only now the broker forgets the order. */
static bool end_order(amqp_connection_state_t broker, const struct queue *queue,
    amqp_envelope_t *delivery, enum outcome outcome)
{
	if (outcome == AGAIN)
		usleep(PAUSE_US); /* in an empty queue it would come again at once */
	if (outcome == REFUSED)   /* a person sees it, however late */
		delivery->message.properties._flags &= ~(amqp_flags_t)AMQP_BASIC_EXPIRATION_FLAG;
	if (outcome != CHARGED &&
	    !move_order(broker, outcome == AGAIN ? queue->name : queue->dead, &delivery->message))
		return false;
	return amqp_basic_ack(broker, ORDERS, delivery->delivery_tag, false) == AMQP_STATUS_OK;
}

/* Until the broker is gone, or SIGTERM. Orders without an acknowledgement come again. */
static void consume_orders(
    amqp_connection_state_t broker, const struct queue *queue, struct billing *billing)
{
	const struct timeval second = {.tv_sec = 1};
	bool well = true;
	while (well && !ended) {
		amqp_envelope_t delivery;
		amqp_maybe_release_buffers(broker);
		amqp_rpc_reply_t reply = amqp_consume_message(broker, &delivery, &second, 0);
		if (reply.library_error == AMQP_STATUS_TIMEOUT)
			continue; /* no order yet */
		if (reply.reply_type != AMQP_RESPONSE_NORMAL) {
			tell_failure(reply);
			return;
		}

		const amqp_basic_properties_t *properties = &delivery.message.properties;
		bool has_id = properties->_flags & AMQP_BASIC_MESSAGE_ID_FLAG;
		const struct order order = {
		    has_id ? properties->message_id : amqp_empty_bytes, delivery.message.body};
		well = end_order(broker, queue, &delivery, handle_order(billing, &order));
		amqp_destroy_envelope(&delivery);
	}
	if (!well)
		tell_failure(amqp_get_rpc_reply(broker));
}

/* A durable queue outlives a restart of the broker. */
static bool declare_queue(amqp_connection_state_t broker, const char *name)
{
	return amqp_queue_declare(
	    broker, ORDERS, amqp_cstring_bytes(name), false, true, false, false, amqp_empty_table);
}

/* One order at a time (prefetch 1), so that a slow charge delays no order of other consumers. */
static bool subscribe(amqp_connection_state_t broker, const struct queue *queue)
{
	return amqp_channel_open(broker, ORDERS) && declare_queue(broker, queue->name) &&
	       declare_queue(broker, queue->dead) && amqp_channel_open(broker, MOVES) &&
	       amqp_tx_select(broker, MOVES) && amqp_basic_qos(broker, ORDERS, 0, 1, false) &&
	       amqp_basic_consume(broker, ORDERS, amqp_cstring_bytes(queue->name), amqp_empty_bytes,
		   false, /* no_ack: false, we acknowledge */ false, false, amqp_empty_table);
}

/* The broker shall say when the queue is deleted. Otherwise the consumer would wait without end. */
static amqp_rpc_reply_t log_in(
    amqp_connection_state_t broker, const struct amqp_connection_info *url)
{
	amqp_table_entry_t notify = {.key = amqp_cstring_bytes("consumer_cancel_notify"),
	    .value = {.kind = AMQP_FIELD_KIND_BOOLEAN, .value.boolean = true}};
	amqp_table_entry_t capabilities = {.key = amqp_cstring_bytes("capabilities"),
	    .value = {.kind = AMQP_FIELD_KIND_TABLE, .value.table = {1, &notify}}};
	const amqp_table_t properties = {1, &capabilities};
	return amqp_login_with_properties(broker, url->vhost, 0, AMQP_DEFAULT_FRAME_SIZE,
	    HEARTBEAT_S, &properties, AMQP_SASL_METHOD_PLAIN, url->user, url->password);
}

static void serve_broker(
    const struct amqp_connection_info *url, const struct queue *queue, struct billing *billing)
{
	amqp_connection_state_t broker = amqp_new_connection();
	amqp_socket_t *socket = amqp_tcp_socket_new(broker);
	amqp_rpc_reply_t login = {.reply_type = AMQP_RESPONSE_LIBRARY_EXCEPTION};
	login.library_error = amqp_socket_open(socket, url->host, url->port);
	if (login.library_error == AMQP_STATUS_OK)
		login = log_in(broker, url);

	if (login.reply_type != AMQP_RESPONSE_NORMAL)
		tell_failure(login);
	else if (!subscribe(broker, queue))
		tell_failure(amqp_get_rpc_reply(broker));
	else
		consume_orders(broker, queue, billing);
	amqp_destroy_connection(broker); /* and the socket */
}

int main(int count, char **arguments) /* URL QUEUE DSN CLAIMS */
{
	struct amqp_connection_info url;
	if (count != 5 || amqp_parse_url(arguments[1], &url) != AMQP_STATUS_OK || url.ssl) {
		fprintf(stderr, "usage: rabbitmq amqp://USER:PASSWORD@HOST QUEUE DSN CLAIMS\n");
		return 1;
	}
	struct queue queue = {.name = arguments[2]};
	snprintf(queue.dead, sizeof queue.dead, "%s.dead", queue.name);
	struct outbox_error error;
	struct billing billing = {.database = PQconnectdb(arguments[3])};
	billing.dedup = outbox_dedup_open("postgres name=billing window=24h", &error);

	signal(SIGTERM, on_sigterm);
	while (!ended) {
		if (billing.claims || (billing.claims = outbox_claims_open(arguments[4], &error)))
			serve_broker(&url, &queue, &billing);
		else if (fprintf(stderr, "%s\n", error.message), error.kind != OUTBOX_RETRY)
			break; /* the line is wrong */
		if (!ended)
			sleep(1); /* until the server is back */
	}

	outbox_claims_close(billing.claims);
	outbox_dedup_close(billing.dedup);
	PQfinish(billing.database);
	return ended ? 0 : 1;
}
