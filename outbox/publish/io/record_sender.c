#include "record_sender.h"

#include <stdio.h>
#include <stdlib.h>

#include "backoff.h"
#include "clock.h"
#include "fault.h"
#include "logging.h"
#include "position_prefix.h"
#include "produce_fault.h"
#include "producer_pair.h"
#include "record_headers.h"
#include "trace.h"

/*
 * record_sender_step is one turn, and gives the order of the sections: records out, reports in, the
 * producer's life (created by an owner, given up by the stream's verdict or a fatal error), and
 * transactions, whose calls run in a thread of the producer while `transactions` says which.
 */

enum {
	REPORTS_A_TURN = 1024,
	RECORDS_A_TURN = 1024,
	LAST_REPORTS_MS = 1000, /* a broken producer gets this time to report on its records */
	PRODUCER_END_MS = 1000,
	STALE_MS = 5000, /* a producer with former certificates gets this time for its answers */
	METADATA_MS = 200,
	METADATA_AGAIN_MS = 1000,
	FENCES_MS = 60000,
	DRAIN_LINGER_MS = 5,
};

struct record_sender {
	const struct publisher_settings *publisher;
	int shard;
	bool drains;
	const char *identity;
	struct stream *stream;
	struct publish_metrics *metrics;
	struct producer_pair *producer; /* NULL: there is none now */
	enum { NO_TRANSACTIONS, UNFENCED, FENCING, OPEN, COMMITTING } transactions;
	int64_t fencing_take; /* stream_takes when the INIT began */
	struct backoff backoff;
	int64_t create_at;  /* when to create the next producer */
	bool unwanted;      /* the stream wants no producer now */
	int64_t abandon_at; /* when the producer is given up; 0: it is in use */
	int64_t stale_at;  /* when its certificates were found to be former ones; 0: they are not */
	int64_t ask_at;    /* when a topic may be looked up again */
	bool fenced;       /* the last producer was fenced, and this one has sent nothing yet */
	int64_t fenced_at; /* the last fence after which the shard stayed ours; 0: never */
	struct producer_topic *topic;        /* topic of the record before; NULL: none */
	enum topic_headers topic_headers;    /* of that topic */
	char position[OUTBOX_POSITION_SIZE]; /* of the current record */
	size_t position_prefix;              /* length of the part that is the same in an epoch */
	struct record_headers headers;
	struct producer_report reports[REPORTS_A_TURN];
	char error[512];
};

static bool delivers_exactly_once(const struct record_sender *sender)
{
	return sender->publisher->delivery == DELIVERY_EXACTLY_ONCE;
}

/*
 * Nobody waits for a single record of a drain, so its batches may fill: with no linger the first
 * records of each page would be requests of their own, and a million rows would cost the broker and
 * this process a fifth more. A transaction waits for its last batch, so it does not linger.
 */
static int64_t linger_ms(const struct record_sender *sender)
{
	int64_t of_pace = publisher_paces[sender->publisher->pace].linger_ms;
	bool waits = sender->drains && !delivers_exactly_once(sender);

	return waits && of_pace < DRAIN_LINGER_MS ? DRAIN_LINGER_MS : of_pace;
}

static bool begin_producer(struct record_sender *sender, struct err *err)
{
	const struct publisher_settings *publisher = sender->publisher;
	bool exact = delivers_exactly_once(sender);
	char id[160];
	snprintf(id, sizeof id, "outbox-relay.%s.%d.%s", publisher->name, sender->shard,
	    sender->identity);
	sender->producer = producer_pair_create(publisher->kafka, exact ? id : NULL,
	    publisher->memory, publisher_settings_in_flight(publisher),
	    stream_topics(sender->stream, false), linger_ms(sender), err);
	sender->transactions = exact ? UNFENCED : NO_TRANSACTIONS;
	sender->topic = NULL;
	return sender->producer != NULL;
}

static void end_producer(struct record_sender *sender, int64_t create_at)
{
	producer_pair_destroy(sender->producer, PRODUCER_END_MS);
	sender->producer = NULL;
	sender->abandon_at = sender->stale_at = 0;
	sender->create_at = create_at;
}

struct record_sender *record_sender_create(const struct publisher_settings *publisher, int shard,
    bool drains, const char *identity, struct stream *stream, struct publish_metrics *metrics,
    struct err *err)
{
	struct record_sender *sender = xcalloc(1, sizeof *sender);
	sender->publisher = publisher;
	sender->shard = shard;
	sender->drains = drains;
	sender->identity = identity;
	sender->stream = stream;
	sender->metrics = metrics;
	sender->backoff = (struct backoff){
	    .first_ms = 20, .cap_ms = 5000, .jitter = 0.2, .seed = (uint64_t)clock_random()};
	if (!begin_producer(sender, err)) {
		record_sender_destroy(sender);
		return NULL;
	}

	if (delivers_exactly_once(sender)) /* its transactional id has no identity yet */
		end_producer(sender, 0);
	return sender;
}

void record_sender_destroy(struct record_sender *sender)
{
	if (!sender)
		return;
	producer_pair_destroy(sender->producer, PRODUCER_END_MS);
	record_headers_finish(&sender->headers);
	free(sender);
}

/* --- fences --------------------------------------------------------------------------------- */

static void note_fence(struct record_sender *sender, const struct err *why)
{
	sender->fenced |= why->kind == ERR_FENCED;
}

/*
 * Records go out again, so a log row was written after the fence: no later owner of this log has
 * fenced the producer. A former owner that was paused beyond its lease can do so once, when it
 * wakes. Two fences in a minute mean that another database has the same identity.
 */
static void judge_fence(struct record_sender *sender, int64_t now)
{
	sender->fenced = false;
	if (sender->fenced_at && now - sender->fenced_at < FENCES_MS)
		log_error("identity_shared", {"publisher", LOG_TEXT(sender->publisher->name)},
		    {"shard", LOG_INT(sender->shard)}, {"identity", LOG_TEXT(sender->identity)},
		    {"consequence",
			LOG_TEXT("a copy of this database publishes to the same cluster with the "
				 "same identity, and each fences the other: stop one of them and "
				 "run `outbox-relay publisher rebase --all --new-identity` on the "
				 "copy")});
	sender->fenced_at = now;
}

void record_sender_forget(struct record_sender *sender)
{
	sender->fenced = false;
	sender->fenced_at = 0;
}

/* --- records out -------------------------------------------------------------------------- */

/* Writes the prefix once in a turn, since it takes longer than the rest of a position. */
static void begin_positions(struct record_sender *sender)
{
	struct outbox_position position = {
	    .shard = sender->shard, .epoch = stream_epoch(sender->stream)};
	text_copy(position.publisher, sizeof position.publisher, sender->publisher->name);
	text_copy(position.identity, sizeof position.identity, sender->identity);
	sender->position_prefix = position_prefix_write(&position, sender->position);
}

/* The topic of the record before needs no look-up. */
static bool choose_topic(struct record_sender *sender, const char *name, struct err *err)
{
	const struct publisher_settings *publisher = sender->publisher;

	if (sender->topic && text_equal(producer_topic_name(sender->topic), name))
		return true;
	sender->topic = producer_topic(producer_pair_turn(sender->producer), name, err);
	sender->topic_headers = publisher->headers(publisher->context, name);
	return sender->topic != NULL;
}

/* The relay's own headers, if the topic has them. */
static void add_own_headers(struct record_sender *sender, const struct stream_record *record)
{
	size_t length;

	if (sender->topic_headers == TOPIC_HEADERS_NONE)
		return;
	length = position_prefix_complete(
	    sender->position, sender->position_prefix, record->tick, record->id);
	record_headers_add_id(&sender->headers, record->message);
	record_headers_add(&sender->headers, "outbox-position", sender->position, length);
}

static bool send_record(
    struct record_sender *sender, const struct stream_record *record, struct err *err)
{
	const struct message *message = record->message;
	struct record_headers *headers = &sender->headers;

	if (!choose_topic(sender, record->topic, err) ||
	    !record_headers_begin(headers, message, err))
		return false;
	add_own_headers(sender, record);

	const struct producer_record out = {
	    .topic = sender->topic,
	    .partition = record->partition,
	    .key = message->key,
	    .key_length = (size_t)message->key_length,
	    .payload = message->payload,
	    .payload_length = (size_t)message->payload_length,
	    .timestamp_ms =
		sender->publisher->timestamp == TIMESTAMP_CREATED ? message->due_us / 1000 : 0,
	    .headers = headers->list,
	    .header_count = headers->count,
	    .opaque = (void *)(uintptr_t)record->sequence,
	};
	return producer_send(producer_pair_turn(sender->producer), &out, err);
}

static enum stream_delivery delivery_of_send_error(enum err_kind kind)
{
	if (kind == ERR_REJECT)
		return STREAM_UNSENDABLE;
	return kind == ERR_DENIED ? STREAM_DENIED : STREAM_AGAIN;
}

static bool send_stream_records(struct record_sender *sender, int64_t now)
{
	struct stream_record record;
	int count = 0;
	begin_positions(sender);

	while (count < RECORDS_A_TURN && stream_send(sender->stream, now, &record)) {
		struct err err;
		fault_point("before_produce");
		publish_metrics_sent(sender->metrics, record.sequence);
		trace_step("sent", (int64_t)record.sequence, record.id);
		if (!send_record(sender, &record, &err))
			stream_report(sender->stream, now, record.sequence,
			    delivery_of_send_error(err.kind), -1, err.message);
		count++;
	}

	/* This owner was fenced: a second time within a minute reveals a copy of the database. */
	if (count && sender->fenced)
		judge_fence(sender, now);
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
    struct record_sender *sender, const struct producer_report *report, int64_t now)
{
	uint64_t sequence = (uint64_t)(uintptr_t)report->opaque;
	if (report->error == 0) {
		publish_metrics_acked(sender->metrics, sequence);
		trace_step("acknowledged", (int64_t)sequence, report->offset);
		stream_report(sender->stream, now, sequence, STREAM_WRITTEN, report->offset, NULL);
		return;
	}
	enum produce_fault fault =
	    report->purged ? PRODUCE_FAULT_NONE : produce_fault_of(report->error);
	stream_report(sender->stream, now, sequence, deliveries[fault], -1,
	    producer_error_text(report->error));
}

static bool take_delivery_reports(struct record_sender *sender, int64_t now)
{
	int count = producer_pair_poll(sender->producer, sender->reports, REPORTS_A_TURN);
	bool written = false;
	for (int i = 0; i < count; i++) {
		written |= sender->reports[i].error == 0;
		take_delivery_report(sender, &sender->reports[i], now);
	}

	if (written) {
		backoff_reset(&sender->backoff);
		fault_point("after_acknowledgement");
	}
	return count == REPORTS_A_TURN;
}

/* --- the producer's life --------------------------------------------------------------------- */

static void abandon_producer(struct record_sender *sender, const char *why, int64_t now)
{
	/* Brokers that refuse records are reachable, so the other records need not wait. */
	const char *verdict = stream_producer_verdict(sender->stream, now);
	bool answered = verdict == stream_refusal || verdict == stream_denial;
	int64_t wait = answered ? 0 : backoff_next_ms(&sender->backoff);

	log_warn("producer_recreated", {"publisher", LOG_TEXT(sender->publisher->name)},
	    {"shard", LOG_INT(sender->shard)}, {"reason", LOG_TEXT(why)},
	    {"retry_ms", LOG_INT(wait)},
	    {"consequence",
		LOG_TEXT(
		    "a new producer sends the unacknowledged records, after reading the tails")});
	metric_add(sender->metrics->producer_recreations, 1);
	end_producer(sender, now + wait);
	publish_metrics_forget(sender->metrics);
	stream_producer_lost(sender->stream);
	fault_point("after_producer_lost");
}

/*
 * Why the producer must be replaced; NULL: it stays. While the brokers are away, another producer
 * would not help.
 */
static const char *reason_to_give_up(struct record_sender *sender, int64_t now, struct err *why)
{
	if (producer_pair_is_fatal(sender->producer, why)) {
		note_fence(sender, why);
		return why->message;
	}
	if (sender->stale_at && now >= sender->stale_at + STALE_MS)
		return "the certificates changed, and its records got no answer";
	const char *verdict = stream_producer_verdict(sender->stream, now);
	return verdict == stream_stalled && *record_sender_error(sender) ? NULL : verdict;
}

/* True while the producer is being given up. */
static bool give_up_if_wanted(struct record_sender *sender, int64_t now)
{
	struct err why;
	const char *reason = reason_to_give_up(sender, now, &why);
	struct stream_status status = stream_status(sender->stream, now);
	bool owns = status.state == STREAM_OWNER || status.state == STREAM_UNSURE;
	if (!reason) {
		sender->abandon_at = 0;
		return false;
	}

	/* After the lease, records in its queue must not go out: another owner may be sending. */
	bool patient = stream_awaits_reports(sender->stream) &&
		       (!sender->abandon_at || now < sender->abandon_at);
	if (!owns || status.lease_over || !patient)
		abandon_producer(sender, reason, now);
	else if (!sender->abandon_at)
		sender->abandon_at = now + LAST_REPORTS_MS;
	return true;
}

static void note_stale(struct record_sender *sender, int64_t now)
{
	if (!sender->stale_at && producer_pair_is_stale(sender->producer))
		sender->stale_at = now;
}

/*
 * Replaces a producer that knows too many topics, or has former certificates. True: nothing is sent
 * until the records in flight are acknowledged; then the producer is ended.
 */
static bool renews_producer(struct record_sender *sender, int64_t now)
{
	bool stale = sender->stale_at > 0;
	if (!stale && !producer_pair_is_bloated(sender->producer))
		return false;
	if (!stream_is_settled(sender->stream))
		return true;
	log_info(stale ? "producer_renewed" : "producer_slimmed",
	    {"publisher", LOG_TEXT(sender->publisher->name)}, {"shard", LOG_INT(sender->shard)},
	    {"topics", LOG_INT(stream_topics(sender->stream, false))});
	end_producer(sender, now);
	stream_producer_lost(sender->stream);
	return true;
}

static bool has_producer(struct record_sender *sender, int64_t now)
{
	struct err err;
	if (sender->producer)
		return true;

	/* A producer with transactions fences the owner's: so only the owner may create it. */
	sender->unwanted =
	    delivers_exactly_once(sender) && !stream_wants_producer(sender->stream, now);
	if (now < sender->create_at || sender->unwanted)
		return false;
	if (begin_producer(sender, &err))
		return true;
	text_copy(sender->error, sizeof sender->error, err.message);
	sender->create_at = now + backoff_next_ms(&sender->backoff);
	return false;
}

/* --- transactions ---------------------------------------------------------------------------- */

static void finish_transaction_call(struct record_sender *sender, int64_t now)
{
	bool fenced = sender->transactions == FENCING;
	fault_point(fenced ? "after_init_transactions" : "after_commit_transaction");
	sender->transactions = OPEN;

	if (!fenced) {
		trace_step("committed", 0, 0);
		stream_committed(sender->stream, now);
	} else if (stream_wants_producer(sender->stream, now) &&
		   sender->fencing_take == stream_takes(sender->stream))
		stream_producer_ready(sender->stream);
	else /* another producer may have fenced it, or one of the pair, by now */
		end_producer(sender, now);
}

/* True: records may go out. While a commit is in flight, they go to the other producer. */
static bool step_transactions(struct record_sender *sender, int64_t now)
{
	struct err why;
	switch (sender->transactions) {
	case NO_TRANSACTIONS:
	case OPEN:
		return true;
	case UNFENCED:
		/* INIT fences the former owner, so only an owner may call it. */
		if (!stream_wants_producer(sender->stream, now))
			return false;
		sender->transactions = FENCING;
		sender->fencing_take = stream_takes(sender->stream);
		producer_pair_begin(sender->producer, PRODUCER_INIT);
		return false;
	case FENCING:
	case COMMITTING:
		break;
	}

	switch (producer_pair_work(sender->producer, &why)) {
	case PRODUCER_DONE:
		finish_transaction_call(sender, now);
		break;
	case PRODUCER_FAILED:
		note_fence(sender, &why);
		abandon_producer(sender, why.message, now);
		break;
	case PRODUCER_NO_CALL:
	case PRODUCER_CALLING:
		break;
	}
	return sender->producer &&
	       (sender->transactions == OPEN || sender->transactions == COMMITTING);
}

static void commit_if_wanted(struct record_sender *sender)
{
	if (sender->transactions != OPEN || !stream_commits(sender->stream))
		return;
	fault_point("before_commit_transaction");
	trace_step("committing", 0, 0);
	sender->transactions = COMMITTING;
	producer_pair_begin(sender->producer, PRODUCER_COMMIT);
	sender->topic = NULL; /* the other producer has the turn */
}

bool record_sender_step(struct record_sender *sender, int64_t now)
{
	if (!has_producer(sender, now))
		return false;

	note_stale(sender, now);
	bool more = take_delivery_reports(sender, now);
	bool free = step_transactions(sender, now);
	if (!sender->producer || give_up_if_wanted(sender, now) || !free)
		return more;

	bool sends = !renews_producer(sender, now);
	if (!sender->producer)
		return true;
	if (sends && send_stream_records(sender, now))
		return true;
	commit_if_wanted(sender);
	return more;
}

bool record_sender_knows(
    struct record_sender *sender, const char *name, int32_t partitions, int64_t now)
{
	int wait_ms = now < sender->ask_at ? 0 : METADATA_MS;
	if (!sender->producer)
		return true; /* the next producer asks the brokers itself */
	bool knows = producer_pair_knows(sender->producer, name, partitions, wait_ms);
	if (wait_ms)
		sender->ask_at = now + (knows ? 1 : METADATA_AGAIN_MS);
	return knows;
}

void record_sender_close_topic(struct record_sender *sender, const char *name)
{
	if (sender->producer)
		producer_pair_close_topic(sender->producer, name);
	sender->topic = NULL;
}

void record_sender_fds(const struct record_sender *sender, int ret_fds[2])
{
	ret_fds[0] = ret_fds[1] = -1;
	if (sender->producer)
		producer_pair_fds(sender->producer, ret_fds);
}

int64_t record_sender_wait(const struct record_sender *sender)
{
	if (!sender->producer)
		return sender->unwanted ? INT64_MAX : sender->create_at;
	if (sender->abandon_at)
		return sender->abandon_at;
	return sender->stale_at ? sender->stale_at + STALE_MS : INT64_MAX;
}

void record_sender_note(struct record_sender *sender)
{
	struct producer_figures figures = {0};
	if (sender->producer)
		figures = producer_pair_figures(sender->producer);
	publish_metrics_kafka(sender->metrics, &figures);
}

/* An error counts until a broker answers after it. */
const char *record_sender_error(struct record_sender *sender)
{
	if (!sender->producer)
		return sender->error;
	struct producer_figures figures = producer_pair_figures(sender->producer);
	int64_t when =
	    producer_pair_last_error(sender->producer, sender->error, sizeof sender->error);
	if (when == 0 || producer_pair_heard(sender->producer) > when ||
	    (figures.at_ms > when && figures.brokers_up > 0))
		sender->error[0] = '\0';
	return sender->error;
}
