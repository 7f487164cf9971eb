/*
 * The limits that drain is compared with: a bare COPY of the same rows in the order of id, each
 * handed to librdkafka as a record with the same configuration, and nothing else: no windows, no
 * log, no lease. The record has the same bytes as the relay's, or is bare: it has the key, the
 * payload and the application's headers, but none of the relay's. libpq allocates a row's memory,
 * which is freed when its record is acknowledged, as in the relay. It uses the same thin adapters
 * (pg.h, producer.h) as the relay does.
 */
#include "bench.h"

#include <errno.h>
#include <poll.h>
#include "copy_binary.h"
#include "partitioner.h"
#include "position_prefix.h"
#include "producer.h"
#include "record_headers.h"
#include "schema_text.h"
#include "sql_bench.h"
#include "text.h"

enum { CREATED_AT, KEY, PAYLOAD, HEADERS, BARE_FIELDS, ID = BARE_FIELDS, EVENT_ID, FIELDS };
enum { REPORTS = 1024, TURN = 512 };

/* Microseconds from 1970-01-01 to 2000-01-01, where a binary timestamptz begins. */
#define POSTGRES_EPOCH_US INT64_C(946684800000000)

struct limit {
	struct pg *pg;
	struct producer *producer;
	struct producer_topic *topic;
	char position[OUTBOX_POSITION_SIZE]; /* position of the row */
	size_t position_prefix;
	char *row; /* row not yet handed to librdkafka; NULL: none */
	struct copy_field fields[FIELDS];
	struct record_headers headers;
	bool bare, first, over;
	int64_t in_flight, most_in_flight;
};

static bool take_limit_reports(struct limit *limit, struct err *err)
{
	struct producer_report reports[REPORTS];
	int count;

	do {
		count = producer_poll(limit->producer, reports, REPORTS);
		for (int i = 0; i < count; i++) {
			if (reports[i].error)
				return err_set(err, ERR_FATAL, "a record was refused: %s",
				    producer_error_text(reports[i].error));
			pg_free_row(reports[i].opaque);
		}
		limit->in_flight -= count;
	} while (count == REPORTS);
	return true;
}

static bool make_limit_headers(struct limit *limit, struct err *err)
{
	const struct copy_field *fields = limit->fields;
	const struct message message = {
	    .event_id = fields[EVENT_ID].data,
	    .headers = fields[HEADERS].data,
	    .headers_length = fields[HEADERS].length,
	};

	if (!record_headers_begin(&limit->headers, &message, err))
		return false;
	if (limit->bare)
		return true;
	record_headers_add_id(&limit->headers, &message);
	record_headers_add(&limit->headers, "outbox-position", limit->position,
	    position_prefix_complete(
		limit->position, limit->position_prefix, 1, copy_int64(fields[ID].data)));
	return true;
}

/* *ret_sent false: the queue is full. */
static bool send_limit_row(struct limit *limit, bool *ret_sent, struct err *err)
{
	const struct copy_field *fields = limit->fields;

	if (!make_limit_headers(limit, err))
		return false;

	const struct producer_record record = {.topic = limit->topic,
	    .partition =
		partitioner_of_key(fields[KEY].data, (size_t)fields[KEY].length, BENCH_PARTITIONS),
	    .key = fields[KEY].data,
	    .key_length = (size_t)fields[KEY].length,
	    .payload = fields[PAYLOAD].data,
	    .payload_length = (size_t)fields[PAYLOAD].length,
	    .timestamp_ms = (copy_int64(fields[CREATED_AT].data) + POSTGRES_EPOCH_US) / 1000,
	    .headers = limit->headers.list,
	    .header_count = limit->headers.count,
	    .opaque = limit->row};

	*ret_sent = producer_send(limit->producer, &record, err);
	if (!*ret_sent)
		return err->kind == ERR_RETRY;
	limit->row = NULL;
	limit->in_flight++;
	return true;
}

/* Takes the next row of the COPY, if one has arrived. */
static bool take_limit_row(struct limit *limit, bool *ret_waits, struct err *err)
{
	enum pg_copy what;
	enum copy_kind kind;
	int length;

	*ret_waits = false;
	if (!pg_copy_next(limit->pg, &what, &limit->row, &length, err))
		return false;
	if (what != PG_COPY_ROW) {
		*ret_waits = what == PG_COPY_WAIT;
		limit->over = what == PG_COPY_END;
		return true;
	}
	if (!copy_parse(limit->row, length, limit->first, limit->fields,
		limit->bare ? BARE_FIELDS : FIELDS, &kind, err))
		return false;
	limit->first = false;
	/* the trailer is no row, but libpq has allocated it like one */
	if (kind == COPY_TRAILER) {
		pg_free_row(limit->row);
		limit->row = NULL;
	}
	return true;
}

/*
 * Handles a turn of rows; *ret_waits true: nothing can be done before a file descriptor is ready.
 */
static bool move_rows(struct limit *limit, bool *ret_waits, struct err *err)
{
	bool sent = true;

	*ret_waits = false;
	for (int i = 0; i < TURN && !*ret_waits && !limit->over; i++) {
		if (!limit->row && !take_limit_row(limit, ret_waits, err))
			return false;
		/* the relay may not have more in flight either, so neither does the limit */
		if (limit->row && (limit->in_flight >= limit->most_in_flight ||
				      !send_limit_row(limit, &sent, err) || !sent)) {
			*ret_waits = true;
			return sent || err->kind == ERR_RETRY;
		}
	}
	*ret_waits |= limit->over;
	return true;
}

static bool run_limit(struct limit *limit, struct err *err)
{
	while (!limit->over || limit->in_flight > 0) {
		struct pollfd fds[] = {{.fd = producer_fd(limit->producer), .events = POLLIN},
		    {.fd = limit->over ? -1 : pg_fd(limit->pg), .events = pg_events(limit->pg)}};
		bool waits;

		if (!move_rows(limit, &waits, err) || !take_limit_reports(limit, err))
			return false;
		/* a row that waits for room stops the reading: only the producer can help */
		if (limit->row)
			fds[1].fd = -1;
		else
			fds[1].events = pg_events(limit->pg);
		if (waits && poll(fds, 2, 10) < 0 && errno != EINTR)
			return err_set(err, ERR_FATAL, "poll failed");
		if (!limit->over && fds[1].revents && !pg_step(limit->pg, err))
			return false;
	}
	return true;
}

/* Never uses transactions, whatever the relay that is compared with it does. */
bool bench_limit(
    const struct publisher_settings *publisher, const char *topic, bool bare, struct err *err)
{
	struct publisher_settings plain = *publisher;
	owned_text char *sql =
	    schema_text(bare ? sql_bench_copy_bare : sql_bench_copy, publisher->postgres->schema);
	OWNED(owned_pg_destroy) struct pg *pg = bench_connect(publisher->postgres, err);
	struct limit limit = {.pg = pg, .bare = bare, .first = true};
	/* as many digits as the relay: a random epoch, the first tick */
	const struct outbox_position first = {
	    BENCH_PUBLISHER, "5eed5eed", 0, INT64_C(5000000000000000000), 1, 1};
	bool good;

	if (!pg)
		return false;
	plain.delivery = DELIVERY_AT_LEAST_ONCE;
	limit.most_in_flight = publisher_settings_in_flight(&plain);
	limit.position_prefix = position_prefix_write(&first, limit.position);
	limit.producer = producer_create(
	    publisher->kafka, NULL, publisher->memory, limit.most_in_flight, 1, err);
	limit.topic = limit.producer ? producer_topic(limit.producer, topic, err) : NULL;
	good = limit.topic && pg_send_copy(pg, sql, err) && run_limit(&limit, err);
	producer_destroy(limit.producer, 1000);
	record_headers_finish(&limit.headers);
	return good;
}
