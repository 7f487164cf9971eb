#include "resume.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "cleanup.h"
#include "clock.h"
#include "hex.h"
#include "logging.h"
#include "position.h"
#include "tail.h"

/*
 * resume_step asks the stream's questions with a tail (outbox/kafka/tail.h) and hands each event
 * back: take_found_record a record with a position of this publisher, take_resume_event the end or
 * a failure. The middle part collects records that the log does not know, until a new log row
 * proves that this owner still has the shard, so that its log has lost them.
 */

enum {
	IDLE_MS = 5000, /* the client is closed after this time without a question */
	END_MS = 100,
	EVENTS_A_TURN = 1024,
	LOG_AGAIN_MS = 30000,
};

/* Records in a partition that belong to a history which the log does not know. */
struct lost {
	char *place; /* "topic/partition" */
	int64_t records, first, last;
	bool ended; /* the partition's end was reached */
	UT_hash_handle hh;
};

struct resume {
	const struct publisher_settings *publisher;
	int shard;
	const char *identity;
	struct stream *stream;
	struct publish_metrics *metrics;
	struct tail *tail;
	int64_t logged_at; /* the last failure that was logged; 0: none */
	bool rewound;      /* history_rewound was logged since the shard was taken */
	/*
	 * Records were found that this owner's log does not know. They are reported only after this
	 * owner has written a log row: an owner that was paused may find the records of the next
	 * owner, but cannot write a row.
	 */
	bool doubtful;
	int64_t rewinds;   /* stream_rewinds at the last report */
	struct lost *lost; /* one for each partition, until it is reported */
};

static bool reads_committed_only(const struct resume *resume)
{
	return resume->publisher->delivery == DELIVERY_EXACTLY_ONCE;
}

struct resume *resume_create(const struct publisher_settings *publisher, int shard,
    const char *identity, struct stream *stream, struct publish_metrics *metrics)
{
	struct resume *resume = xcalloc(1, sizeof *resume);
	resume->publisher = publisher;
	resume->shard = shard;
	resume->identity = identity;
	resume->stream = stream;
	resume->metrics = metrics;
	resume->tail = tail_create(publisher->kafka,
	    reads_committed_only(resume) ? "read_committed" : "read_uncommitted", IDLE_MS);
	return resume;
}

static void forget_lost(struct resume *resume)
{
	struct lost *lost, *next;
	HASH_ITER(hh, resume->lost, lost, next)
	{
		HASH_DEL(resume->lost, lost);
		free(lost->place);
		free(lost);
	}
}

void resume_destroy(struct resume *resume)
{
	if (!resume)
		return;
	tail_destroy(resume->tail, END_MS);
	forget_lost(resume);
	free(resume);
}

void resume_forget(struct resume *resume)
{
	tail_forget(resume->tail);
	forget_lost(resume);
	resume->rewound = resume->doubtful = false;
	resume->rewinds = stream_rewinds(resume->stream);
}

static bool read_names(const struct consumer_record *record, struct outbox_position *ret_position,
    char ret_event_id[16])
{
	const void *position, *id;
	size_t position_length, id_length;
	return consumer_header(record, "outbox-position", &position, &position_length) &&
	       position && outbox_position_parse(position, position_length, ret_position) &&
	       consumer_header(record, "outbox-id", &id, &id_length) && id &&
	       uuid_read(id, id_length, ret_event_id);
}

/* Another database's publisher may have the same name, and publish to the same topic. */
static bool is_own_position(const struct resume *resume, const struct outbox_position *position)
{
	return position->shard == resume->shard &&
	       text_starts(resume->identity, position->identity) &&
	       text_equal(position->publisher, resume->publisher->name);
}

static void log_rewound(struct resume *resume)
{
	if (!resume->rewound) {
		metric_add(resume->metrics->rewound, 1);
		log_error("history_rewound", {"publisher", LOG_TEXT(resume->publisher->name)},
		    {"shard", LOG_INT(resume->shard)},
		    {"consequence",
			LOG_TEXT("Kafka has records that the log of the database does not "
				 "know of: the database went back in time, or is a copy of "
				 "one that goes on publishing (then it needs `publisher rebase "
				 "--new-identity`); a new epoch begins; lost_history tells "
				 "where these records are")});
	}
	resume->rewound = true;
}

static struct lost *find_lost(struct resume *resume, const char *topic, int32_t partition, bool add)
{
	owned_text char *place = xformat("%s/%d", topic, partition);
	struct lost *lost;
	HASH_FIND_STR(resume->lost, place, lost);
	if (lost || !add)
		return lost;
	lost = xcalloc(1, sizeof *lost);
	lost->place = xstrdup(place);
	HASH_ADD_KEYPTR(hh, resume->lost, lost->place, strlen(lost->place), lost);
	return lost;
}

static void add_lost(struct resume *resume, const struct consumer_record *record)
{
	struct lost *lost = find_lost(resume, record->topic, record->partition, true);
	if (lost->records++ == 0)
		lost->first = record->offset;
	lost->last = record->offset;
}

/* One line for a partition, at its end: one for each record would exceed the log's rate limit. */
static void log_lost(struct resume *resume, struct lost *lost)
{
	char *slash = strrchr(lost->place, '/');
	owned_text char *topic = xformat("%.*s", (int)(slash - lost->place), lost->place);

	log_warn("lost_history", {"publisher", LOG_TEXT(resume->publisher->name)},
	    {"shard", LOG_INT(resume->shard)}, {"topic", LOG_TEXT(topic)},
	    {"partition", LOG_INT(strtol(slash + 1, NULL, 10))},
	    {"records", LOG_INT(lost->records)}, {"first_offset", LOG_INT(lost->first)},
	    {"last_offset", LOG_INT(lost->last)},
	    {"consequence", LOG_TEXT("the database lacks the rows of these records; `outbox-relay "
				     "verify` lists them")});
	HASH_DEL(resume->lost, lost);
	free(lost->place);
	free(lost);
}

/* Reports the lost records once this owner has written a log row. */
static void confirm_rewound(struct resume *resume)
{
	struct lost *lost, *next;
	int64_t rewinds = stream_rewinds(resume->stream);

	/* Until its own log row is committed, this process may be a former owner that sees its
	 * successor's records. */
	if (!resume->doubtful || rewinds == resume->rewinds)
		return;
	resume->rewinds = rewinds;
	resume->doubtful = false;
	log_rewound(resume);
	HASH_ITER(hh, resume->lost, lost, next)
	{
		if (lost->ended)
			log_lost(resume, lost);
	}
}

static void end_lost(struct resume *resume, const char *topic, int32_t partition)
{
	struct lost *lost = find_lost(resume, topic, partition, false);

	if (!lost)
		return;
	lost->ended = true;
	if (!resume->doubtful)
		log_lost(resume, lost);
}

static struct stream_question stream_question_of(const struct tail_event *event)
{
	return (struct stream_question){event->topic, event->partition, event->number};
}

static void take_found_record(struct resume *resume, const struct tail_event *event)
{
	const struct consumer_record *record = &event->record;
	const struct stream_question question = stream_question_of(event);
	struct outbox_position position;
	char event_id[16];
	/* Records of other publishers, databases and programs say nothing about this log. */
	if (!read_names(record, &position, event_id) || !is_own_position(resume, &position))
		return;

	enum stream_found found =
	    stream_tail_record(resume->stream, &question, record->offset, &position, event_id);
	if (found == STREAM_FOUND_UNKNOWN) {
		resume->doubtful = true;
		add_lost(resume, record);
	} else if (found == STREAM_FOUND_ENOUGH) {
		tail_drop(resume->tail, question.topic, question.partition);
	}
}

static void log_failure(struct resume *resume, const struct tail_event *event, int64_t now)
{
	bool for_good = event->failure.kind != ERR_RETRY;
	/* A broker that is away would fill the log. */
	if (!for_good && resume->logged_at && now - resume->logged_at < LOG_AGAIN_MS)
		return;

	resume->logged_at = now;
	log_warn("tail_not_read", {"publisher", LOG_TEXT(resume->publisher->name)},
	    {"shard", LOG_INT(resume->shard)},
	    {"topic", LOG_TEXT(event->topic ? event->topic : "")},
	    {"partition", LOG_INT(event->topic ? event->partition : -1)},
	    {"error", LOG_TEXT(event->failure.message)},
	    {"consequence", LOG_TEXT(for_good && !reads_committed_only(resume)
					 ? "records that are there already may be published again"
					 : "its records wait until it is")});
}

static void log_recreated(struct resume *resume, const struct tail_event *event)
{
	log_error("topic_recreated", {"publisher", LOG_TEXT(resume->publisher->name)},
	    {"shard", LOG_INT(resume->shard)}, {"topic", LOG_TEXT(event->topic)},
	    {"partition", LOG_INT(event->partition)}, {"end", LOG_INT(event->end)},
	    {"consequence",
		LOG_TEXT("the partition ends before an offset that was noted: its topic "
			 "was made anew or truncated; a new epoch begins")});
}

/* Retention, or a person, deleted records: it is unknown which of them were ours. */
static void log_cut(struct resume *resume, const struct tail_event *event)
{
	log_warn("tail_cut", {"publisher", LOG_TEXT(resume->publisher->name)},
	    {"shard", LOG_INT(resume->shard)}, {"topic", LOG_TEXT(event->topic)},
	    {"partition", LOG_INT(event->partition)}, {"noted", LOG_INT(event->asked)},
	    {"begin", LOG_INT(event->begin)},
	    {"consequence",
		LOG_TEXT("records behind the noted offset were removed from the topic; those "
			 "that the log does not have are published again")});
}

static void take_resume_event(struct resume *resume, const struct tail_event *event, int64_t now)
{
	const struct stream_question question = stream_question_of(event);

	switch (event->kind) {
	case TAIL_RECORD:
		take_found_record(resume, event);
		break;
	case TAIL_BEYOND:
		log_recreated(resume, event);
		/* fallthrough */
	case TAIL_END:
		resume->logged_at = 0;
		if (event->kind == TAIL_END && event->asked >= 0 && event->begin > event->asked)
			log_cut(resume, event);
		end_lost(resume, event->topic, event->partition);
		metric_add(resume->metrics->tails_read, 1);
		stream_tail_end(resume->stream, &question, event->end, event->kind == TAIL_BEYOND);
		break;
	case TAIL_FAILED:
		log_failure(resume, event, now);
		if (event->failure.kind != ERR_RETRY)
			stream_tail_failed(resume->stream, now, &question);
		break;
	}
}

static void ask_for_tails(struct resume *resume, int64_t now)
{
	struct stream_tail tail;

	while (stream_tail_call(resume->stream, now, &tail)) {
		const struct tail_question question = {.topic = tail.topic,
		    .partition = tail.partition,
		    .offset = tail.offset,
		    .least = tail.least,
		    .number = tail.number};
		struct tail_event refused = {.kind = TAIL_FAILED,
		    .topic = tail.topic,
		    .partition = tail.partition,
		    .number = tail.number};
		if (!tail_ask(resume->tail, &question, &refused.failure))
			take_resume_event(resume, &refused, now);
	}
}

bool resume_step(struct resume *resume, int64_t now)
{
	struct tail_event event;
	int count = 0;
	confirm_rewound(resume);
	ask_for_tails(resume, now);
	while (count < EVENTS_A_TURN && tail_next(resume->tail, now, &event)) {
		take_resume_event(resume, &event, now);
		count++;
	}
	return count == EVENTS_A_TURN;
}

int resume_fd(const struct resume *resume)
{
	return tail_fd(resume->tail);
}

int64_t resume_wait(const struct resume *resume)
{
	return tail_wait(resume->tail);
}
