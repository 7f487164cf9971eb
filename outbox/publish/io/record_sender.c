#include "record_sender.h"

#include <stdio.h>
#include <stdlib.h>

#include "backoff.h"
#include "clock.h"
#include "fault.h"
#include "logging.h"
#include "position_prefix.h"
#include "produce_fault.h"
#include "producer.h"
#include "record_headers.h"

enum {
	REPORTS_A_TURN = 1024,
	RECORDS_A_TURN = 1024,
	LAST_REPORTS_MS = 1000, /* a broken producer still tells what became of its records */
	PRODUCER_END_MS = 1000,
	METADATA_MS = 200,
	METADATA_AGAIN_MS = 1000,
	CONCURRENT_MS = 20, /* librdkafka's wait after CONCURRENT_TRANSACTIONS */
	FENCES_MS = 60000,
};

struct delivery {
	const struct publisher_settings *publisher;
	int shard;
	const char *identity;
	struct stream *stream;
	struct publish_metrics *metrics;
	struct producer *producer; /* NULL: not now */
	enum { NO_TRANSACTIONS, UNFENCED, FENCING, OPEN, COMMITTING } transactions;
	struct backoff backoff;
	int64_t create_at;  /* not before */
	bool unwanted;      /* not now */
	int64_t abandon_at; /* 0: the producer is in use */
	int64_t ask_at;     /* about a topic, not before */
	int64_t commit_at;  /* when the commit began */
	int64_t send_at;    /* the next transaction, not before; 0: now */
	bool fenced;        /* the last producer was, and nothing was sent by this one yet */
	int64_t fenced_at;  /* when it last was, and the shard stayed ours; 0: never */
	struct producer_topic *topic;        /* of the record before; NULL: none */
	char position[OUTBOX_POSITION_SIZE]; /* of the current record */
	size_t position_prefix;              /* length of the part that an epoch shares */
	struct record_headers headers;
	struct producer_report reports[REPORTS_A_TURN];
	char error[512];
};

static bool delivers_exactly_once(const struct delivery *delivery)
{
	return delivery->publisher->delivery == DELIVERY_EXACTLY_ONCE;
}

static bool make_delivery_producer(struct delivery *delivery, struct err *err)
{
	const struct publisher_settings *publisher = delivery->publisher;
	bool exact = delivers_exactly_once(delivery);
	char id[160];
	snprintf(id, sizeof id, "outbox-relay.%s.%d.%s", publisher->name, delivery->shard,
	    delivery->identity);
	delivery->producer = producer_create(publisher->kafka, exact ? id : NULL, publisher->memory,
	    publisher_settings_in_flight(publisher), stream_topics(delivery->stream, false), err);
	delivery->transactions = exact ? UNFENCED : NO_TRANSACTIONS;
	delivery->topic = NULL;
	return delivery->producer != NULL;
}

static void drop_delivery_producer(struct delivery *delivery, int64_t create_at)
{
	producer_destroy(delivery->producer, PRODUCER_END_MS);
	delivery->producer = NULL;
	delivery->abandon_at = 0;
	delivery->create_at = create_at;
}

struct delivery *delivery_create(const struct publisher_settings *publisher, int shard,
    const char *identity, struct stream *stream, struct publish_metrics *metrics, struct err *err)
{
	struct delivery *delivery = xcalloc(1, sizeof *delivery);
	delivery->publisher = publisher;
	delivery->shard = shard;
	delivery->identity = identity;
	delivery->stream = stream;
	delivery->metrics = metrics;
	delivery->backoff = (struct backoff){
	    .first_ms = 20, .cap_ms = 5000, .jitter = 0.2, .seed = (uint64_t)clock_random()};
	if (!make_delivery_producer(delivery, err)) {
		delivery_destroy(delivery);
		return NULL;
	}
	if (delivers_exactly_once(delivery)) /* this one's id has no identity yet */
		drop_delivery_producer(delivery, 0);
	return delivery;
}

void delivery_destroy(struct delivery *delivery)
{
	if (!delivery)
		return;
	producer_destroy(delivery->producer, PRODUCER_END_MS);
	record_headers_finish(&delivery->headers);
	free(delivery);
}

/* --- fences --------------------------------------------------------------------------------- */

static void note_fence(struct delivery *delivery, const struct err *why)
{
	delivery->fenced |= why->kind == ERR_FENCED;
}

/*
 * Records go out again, so the log row behind the fence was written: no other owner of this log has
 * fenced this producer. A former owner that was paused beyond its lease can do it once, when it
 * wakes. Twice in a minute means that another database has the same identity.
 */
static void judge_fence(struct delivery *delivery, int64_t now)
{
	delivery->fenced = false;
	if (delivery->fenced_at && now - delivery->fenced_at < FENCES_MS)
		log_error("identity_shared", {"publisher", LOG_TEXT(delivery->publisher->name)},
		    {"shard", LOG_INT(delivery->shard)}, {"identity", LOG_TEXT(delivery->identity)},
		    {"consequence",
			LOG_TEXT("a copy of this database publishes to the same cluster with the "
				 "same identity, and each fences the other: stop one of them and "
				 "run `outbox-relay publisher rebase --all --new-identity` on the "
				 "copy")});
	delivery->fenced_at = now;
}

void delivery_forget(struct delivery *delivery)
{
	delivery->fenced = false;
	delivery->fenced_at = 0;
}

/* --- records out -------------------------------------------------------------------------- */

/* Once a turn, since the prefix takes longer to write than the rest of a position. */
static void begin_positions(struct delivery *delivery)
{
	struct outbox_position position = {
	    .shard = delivery->shard, .epoch = stream_epoch(delivery->stream)};
	text_copy(position.publisher, sizeof position.publisher, delivery->publisher->name);
	text_copy(position.identity, sizeof position.identity, delivery->identity);
	delivery->position_prefix = position_prefix_write(&position, delivery->position);
}

static bool send_record(
    struct delivery *delivery, const struct stream_record *record, struct err *err)
{
	const struct message *message = record->message;
	struct record_headers *headers = &delivery->headers;
	size_t position_length = position_prefix_complete(
	    delivery->position, delivery->position_prefix, record->tick, record->id);
	if (!delivery->topic || !text_equal(producer_topic_name(delivery->topic), record->topic))
		delivery->topic = producer_topic(delivery->producer, record->topic, err);
	if (!delivery->topic)
		return false;
	if (!record_headers_begin(headers, message, err))
		return false;
	record_headers_add(headers, "outbox-position", delivery->position, position_length);
	const struct producer_record out = {
	    .topic = delivery->topic,
	    .partition = record->partition,
	    .key = message->key,
	    .key_length = (size_t)message->key_length,
	    .payload = message->payload,
	    .payload_length = (size_t)message->payload_length,
	    .timestamp_ms =
		delivery->publisher->timestamp == TIMESTAMP_CREATED ? message->due_us / 1000 : 0,
	    .headers = headers->list,
	    .header_count = headers->count,
	    .opaque = (void *)(uintptr_t)record->sequence,
	};
	return producer_send(delivery->producer, &out, err);
}

static enum stream_delivery delivery_of_send_error(enum err_kind kind)
{
	if (kind == ERR_REJECT)
		return STREAM_UNSENDABLE;
	return kind == ERR_DENIED ? STREAM_DENIED : STREAM_AGAIN;
}

static bool send_stream_records(struct delivery *delivery, int64_t now)
{
	struct stream_record record;
	int count = 0;
	begin_positions(delivery);
	while (count < RECORDS_A_TURN && stream_send(delivery->stream, now, &record)) {
		struct err err;
		fault_point("before_produce");
		publish_metrics_sent(delivery->metrics, record.sequence);
		if (!send_record(delivery, &record, &err))
			stream_report(delivery->stream, now, record.sequence,
			    delivery_of_send_error(err.kind), -1, err.message);
		count++;
	}
	if (count && delivery->fenced)
		judge_fence(delivery, now);
	if (count)
		fault_point("after_produce");
	return count == RECORDS_A_TURN;
}

/* --- reports in ---------------------------------------------------------------------------- */

static const enum stream_delivery deliveries[] = {
    [PRODUCE_FAULT_NONE] = STREAM_AGAIN,
    [PRODUCE_FAULT_RECORD] = STREAM_REFUSED,
    [PRODUCE_FAULT_TOPIC] = STREAM_DENIED,
    [PRODUCE_FAULT_UNKNOWN] = STREAM_FAILED,
};

static void take_delivery_report(
    struct delivery *delivery, const struct producer_report *report, int64_t now)
{
	uint64_t sequence = (uint64_t)(uintptr_t)report->opaque;
	if (report->error == 0) {
		publish_metrics_acked(delivery->metrics, sequence);
		stream_report(
		    delivery->stream, now, sequence, STREAM_WRITTEN, report->offset, NULL);
		return;
	}
	enum produce_fault fault =
	    report->purged ? PRODUCE_FAULT_NONE : produce_fault_of(report->error);
	stream_report(delivery->stream, now, sequence, deliveries[fault], -1,
	    producer_error_text(report->error));
}

static bool take_delivery_reports(struct delivery *delivery, int64_t now)
{
	int count = producer_poll(delivery->producer, delivery->reports, REPORTS_A_TURN);
	bool written = false;
	for (int i = 0; i < count; i++) {
		written |= delivery->reports[i].error == 0;
		take_delivery_report(delivery, &delivery->reports[i], now);
	}
	if (written) {
		backoff_reset(&delivery->backoff);
		fault_point("after_acknowledgement");
	}
	return count == REPORTS_A_TURN;
}

/* --- the producer's life --------------------------------------------------------------------- */

static void abandon_producer(struct delivery *delivery, const char *why, int64_t now)
{
	/* brokers that answer so are there: others need not wait */
	const char *verdict = stream_producer_verdict(delivery->stream, now);
	bool answered = verdict == stream_refusal || verdict == stream_denial;
	int64_t wait = answered ? 0 : backoff_next_ms(&delivery->backoff);
	log_warn("producer_recreated", {"publisher", LOG_TEXT(delivery->publisher->name)},
	    {"shard", LOG_INT(delivery->shard)}, {"reason", LOG_TEXT(why)},
	    {"retry_ms", LOG_INT(wait)});
	metric_add(delivery->metrics->producer_recreations, 1);
	drop_delivery_producer(delivery, now + wait);
	publish_metrics_forget(delivery->metrics);
	stream_producer_lost(delivery->stream);
	fault_point("after_producer_lost");
}

/* Why the producer must go; NULL: it stays. Another one would not bring back brokers that are away.
 */
static const char *reason_to_give_up(struct delivery *delivery, int64_t now, struct err *why)
{
	if (producer_is_fatal(delivery->producer, why)) {
		note_fence(delivery, why);
		return why->message;
	}
	const char *verdict = stream_producer_verdict(delivery->stream, now);
	return verdict == stream_stalled && *delivery_error(delivery) ? NULL : verdict;
}

/* True while the producer is being given up. */
static bool give_up_if_wanted(struct delivery *delivery, int64_t now)
{
	struct err why;
	const char *reason = reason_to_give_up(delivery, now, &why);
	struct stream_status status = stream_status(delivery->stream, now);
	bool owns = status.state == STREAM_OWNER || status.state == STREAM_UNSURE;
	if (!reason) {
		delivery->abandon_at = 0;
		return false;
	}
	/* what waits in its queue must not go out beside another owner's records */
	bool patient = stream_awaits_reports(delivery->stream) &&
		       (!delivery->abandon_at || now < delivery->abandon_at);
	if (!owns || status.lease_over || !patient)
		abandon_producer(delivery, reason, now);
	else if (!delivery->abandon_at)
		delivery->abandon_at = now + LAST_REPORTS_MS;
	return true;
}

/*
 * True: nothing is sent until what is under way has come through, and then there is another
 * producer.
 */
static bool slims_producer(struct delivery *delivery, int64_t now)
{
	if (!producer_is_bloated(delivery->producer))
		return false;
	if (!stream_is_settled(delivery->stream))
		return true;
	log_info("producer_slimmed", {"publisher", LOG_TEXT(delivery->publisher->name)},
	    {"shard", LOG_INT(delivery->shard)},
	    {"topics", LOG_INT(stream_topics(delivery->stream, false))});
	drop_delivery_producer(delivery, now);
	stream_producer_lost(delivery->stream);
	return true;
}

static bool has_producer(struct delivery *delivery, int64_t now)
{
	struct err err;
	if (delivery->producer)
		return true;
	/* one with transactions fences that of the owner: only an owner may make it */
	delivery->unwanted =
	    delivers_exactly_once(delivery) && !stream_wants_producer(delivery->stream, now);
	if (now < delivery->create_at || delivery->unwanted)
		return false;
	if (make_delivery_producer(delivery, &err))
		return true;
	text_copy(delivery->error, sizeof delivery->error, err.message);
	delivery->create_at = now + backoff_next_ms(&delivery->backoff);
	return false;
}

/* --- transactions ---------------------------------------------------------------------------- */

/*
 * When a commit returns, the coordinator has noted it, and goes on: markers into the partitions,
 * then a note that they are there. Until then a partition of the next transaction is turned away,
 * and librdkafka asks again after CONCURRENT_MS. So the next begins after two such writes more.
 */
static int64_t next_transaction(const struct delivery *delivery, int64_t now)
{
	int64_t wait = 2 + 2 * (now - delivery->commit_at);
	return now + (wait < CONCURRENT_MS ? wait : CONCURRENT_MS);
}

static void finish_transaction_call(struct delivery *delivery, int64_t now)
{
	bool fenced = delivery->transactions == FENCING;
	fault_point(fenced ? "after_init_transactions" : "after_commit_transaction");
	delivery->transactions = OPEN;
	if (!fenced) {
		delivery->send_at = next_transaction(delivery, now);
		stream_committed(delivery->stream, now);
	} else if (stream_wants_producer(delivery->stream, now))
		stream_producer_ready(delivery->stream);
	else /* it may be fenced by now */
		drop_delivery_producer(delivery, now);
}

/* True: the producer is there, and no call is under way. */
static bool step_transactions(struct delivery *delivery, int64_t now)
{
	struct err why;
	switch (delivery->transactions) {
	case NO_TRANSACTIONS:
	case OPEN:
		return true;
	case UNFENCED:
		if (!stream_wants_producer(delivery->stream, now))
			return false;
		delivery->transactions = FENCING;
		producer_begin(delivery->producer, PRODUCER_INIT);
		return false;
	case FENCING:
	case COMMITTING:
		break;
	}
	switch (producer_work(delivery->producer, &why)) {
	case PRODUCER_DONE:
		finish_transaction_call(delivery, now);
		break;
	case PRODUCER_FAILED:
		note_fence(delivery, &why);
		abandon_producer(delivery, why.message, now);
		break;
	case PRODUCER_NO_CALL:
	case PRODUCER_CALLING:
		break;
	}
	return delivery->producer && delivery->transactions == OPEN;
}

static void commit_if_wanted(struct delivery *delivery, int64_t now)
{
	if (delivery->transactions != OPEN || !stream_commits(delivery->stream))
		return;
	fault_point("before_commit_transaction");
	delivery->transactions = COMMITTING;
	delivery->commit_at = now;
	producer_begin(delivery->producer, PRODUCER_COMMIT);
}

bool delivery_step(struct delivery *delivery, int64_t now)
{
	if (!has_producer(delivery, now))
		return false;
	bool more = take_delivery_reports(delivery, now);
	bool free = step_transactions(delivery, now);
	if (!delivery->producer || give_up_if_wanted(delivery, now) || !free ||
	    now < delivery->send_at)
		return more;
	delivery->send_at = 0;
	bool sends = !slims_producer(delivery, now);
	if (!delivery->producer)
		return true;
	if (sends && send_stream_records(delivery, now))
		return true;
	commit_if_wanted(delivery, now);
	return more;
}

bool delivery_knows(struct delivery *delivery, const char *name, int32_t partitions, int64_t now)
{
	struct err err;
	int wait_ms = now < delivery->ask_at ? 0 : METADATA_MS;
	if (!delivery->producer)
		return true; /* the next one asks anew */
	struct producer_topic *topic = producer_topic(delivery->producer, name, &err);
	bool knows = topic && producer_knows(delivery->producer, topic, partitions, wait_ms);
	if (wait_ms)
		delivery->ask_at = now + (knows ? 1 : METADATA_AGAIN_MS);
	return knows;
}

void delivery_close_topic(struct delivery *delivery, const char *name)
{
	if (delivery->producer)
		producer_close_topic(delivery->producer, name);
	delivery->topic = NULL;
}

int delivery_fd(const struct delivery *delivery)
{
	return delivery->producer ? producer_fd(delivery->producer) : -1;
}

int64_t delivery_wait(const struct delivery *delivery)
{
	if (!delivery->producer)
		return delivery->unwanted ? INT64_MAX : delivery->create_at;
	if (delivery->abandon_at)
		return delivery->abandon_at;
	return delivery->send_at ? delivery->send_at : INT64_MAX;
}

void delivery_note(struct delivery *delivery)
{
	struct producer_figures figures = {0};
	if (delivery->producer)
		figures = producer_figures(delivery->producer);
	publish_metrics_kafka(delivery->metrics, &figures);
}

/* An error counts until a broker answers after it. */
const char *delivery_error(struct delivery *delivery)
{
	if (!delivery->producer)
		return delivery->error;
	struct producer_figures figures = producer_figures(delivery->producer);
	int64_t when =
	    producer_last_error(delivery->producer, delivery->error, sizeof delivery->error);
	if (when == 0 || producer_heard(delivery->producer) > when ||
	    (figures.at_ms > when && figures.brokers_up > 0))
		delivery->error[0] = '\0';
	return delivery->error;
}
