#pragma once
/*
 * Declarations that the files of the stream share: stream.c (the algorithm, states, the whole),
 * stream_calls.c (the next call on the log connection), stream_answers.c (its answers),
 * stream_reading.c (windows and their rows), stream_sending.c (the producer and tails).
 */
#include "record_queue.h"
#include "stream.h"

enum {
	MANY_WINDOWS = 16,
	MAX_WINDOWS = 256,
	PAGE_ROWS_MAX = 16384,
	BATCH_ROWS = 500, /* maximum of parked rows that one tick frees, retries or skips */
	SAME_ID = 8,
	/*
	 * The database answers with this time if due rows belong to windows that are still open.
	 * Rows of closed windows may be behind them, so the records found in tails are kept.
	 */
	BLOCKED_LOOK_MS = 50,
};

struct window {
	int64_t tick;
	int64_t last_id;  /* rows up to here are read */
	int64_t acked_id; /* rows up to here are published, without a gap */
	uint64_t end;     /* the number after its last record; 0: not all rows are read */
	/*
	 * Rows with the id `last_id` that came with the present page. Several rows have the same id
	 * if the sequence was set back. If the page fails, the next one begins in front of this id
	 * and skips these rows.
	 */
	int64_t same[SAME_ID]; /* created_us */
	int same_count;
	bool again; /* the page failed after some of these rows came */
};

struct call {
	struct stream_tick tick; /* call NONE: no call is in flight */
	int64_t issued;
	uint64_t acked;
	bool renews;   /* we use the new epoch at once; its reason may have gone meanwhile */
	bool confirms; /* sent after the producer had fenced all others */
	struct poison_guard_row guard_row;
};

/* With transactions. Without, a producer is confirmed from the start. */
enum producer_phase {
	PRODUCER_NEW,   /* other producers may still write */
	PRODUCER_READY, /* it has fenced all others; the next log row shows who owns the shard */
	PRODUCER_CONFIRMED, /* a log row was written since, and its answer came */
};

/* Which rows of a page or a TICK are expected; those of a page of a lost shard are not. */
enum expected_rows { ROWS_NONE, ROWS_WHOLE, ROWS_WITHHELD /* without their contents */ };

struct stream {
	struct stream_settings settings;
	struct record_queue *queue;
	enum stream_state state; /* stream_move sets it */
	uint64_t random;
	int64_t n, nonce;
	int64_t epoch;          /* the epoch in the positions that we send */
	int64_t logged_epoch;   /* the epoch in the log; another one after a refusal */
	struct window *windows; /* oldest first */
	int window_count, window_capacity;
	int64_t first_tick; /* of the acknowledged snapshot: windows[0] is first_tick + 1 */
	int64_t former_epoch, inherited_tick; /* when the shard was taken; its newest window */
	int64_t tail_tick; /* found records belong to windows up to here; 0: none are kept */
	/* Or up to the window that opens next: a failover may have undone their window. */
	bool tail_open;
	/* Open destinations after open_after are not read yet. */
	bool open_unknown;
	struct text open_after;
	struct pg_array topics; /* argument of the call in flight */
	int64_t load_at;        /* earliest time to read destinations */
	int64_t check_at;       /* earliest time to read closed topics, after check_after */
	struct text check_after;
	int64_t strange_until; /* until then a former owner may have unknown records; 0: none */
	/* A tail has shown that Kafka knows positions that the log does not. */
	bool rewound;
	int64_t rewinds; /* log rows that began a new epoch for that reason */
	struct call call;
	struct text destinations;
	char *parks;         /* argument of the call in flight */
	int64_t listed_tick; /* the open listed window; 0: none */
	int64_t list_at;     /* when a parked or scheduled row may be due; INT64_MAX: none */
	int64_t requests;
	/* Rows are parked, and some stalled places are not read yet; first open destinations are.
	 */
	bool places_unknown;
	char *after_topic; /* the last place that was read */
	int32_t after_partition;
	/* The last call of an owner was a TICK: now look-ups and pages of digests have the turn. */
	bool looks_first;
	int64_t written_at; /* when the last written row was sent */
	int64_t lease_over_at;
	int64_t progress_at; /* since when there is progress to note; 0: none */
	int64_t next_take, next_poll, poll_interval, rows_at, retry_at;
	int failures;     /* consecutive failures of log calls */
	int64_t renew_at; /* earliest time of RENEW, the next call; INT64_MAX: it is another */
	int64_t batch;    /* parked rows of the next TICK */
	int64_t rest_us;  /* duration of the rest of such a TICK: a moving average */
	int halves;       /* how often the work of a TICK is halved, as TICKs were late */
	/* A late TICK looked at rows: the next one opens its window without looking. */
	bool blind;
	int read_failures; /* consecutive failures of pages */
	int64_t read_at;   /* earliest time to read the next page */
	int64_t page_cost; /* average memory of a row, for the size of the next page */
	int64_t moved_at;  /* the last acknowledgement, or when records began to go out */
	const char *producer_verdict;
	enum producer_phase producer;
	int64_t takes; /* how often the shard was taken */
	/* A commit is in flight. The producer need not be confirmed then: see unsure_written. */
	bool committing;
	int64_t transaction_at; /* when the first record of the open transaction went out */
	int64_t transaction_records, transaction_limit, transaction_bytes;
	int64_t tails_again_at;
	bool found_nothing; /* the last look found no window */
	bool dozes;         /* stream_doze was called since the last look was sent */
	bool hurries;       /* stream_hurry was called since the last look was sent */
	struct stream_looks looks;
	enum expected_rows rows;
	bool paused;   /* by an operator, as of the last TICK or TAKE */
	bool stopping; /* stream_stop was called; an owner notes what it has sent before it ends */
	int64_t stop_by;
	int64_t published, published_bytes;
	struct poison_guard guard;
	int64_t marked_at;
};

/* --- stream.c -------------------------------------------------------------------------------- */
/* Set the fields that the new state requires before. */
void stream_move(struct stream *stream, enum stream_state state);
/* The verdict on the producer of a lost shard. Its records stay in memory until it is destroyed. */
extern const char stream_lost_shard[];

static inline int64_t stream_most_batch(const struct stream *stream)
{
	return stream->settings.parking.batch ? stream->settings.parking.batch : BATCH_ROWS;
}

static inline int64_t earlier_of(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static inline bool stream_is_forgetting(const struct stream *stream)
{
	return stream->producer_verdict == stream_lost_shard;
}

static inline bool stream_lease_is_over(const struct stream *stream, int64_t now)
{
	return now >= stream->lease_over_at;
}

static inline int64_t stream_page_budget(const struct stream *stream)
{
	return stream->settings.memory / 4;
}

/* The time to stop is over: nothing more is sent, and records in flight go with their producer. */
static inline bool stream_must_end(const struct stream *stream, int64_t now)
{
	return stream->stopping && now >= stream->stop_by;
}

/* A record is in flight, or in the open transaction. */
static inline bool stream_is_in_transaction(const struct stream *stream)
{
	return record_queue_under_way(stream->queue) ||
	       record_queue_written(stream->queue) > record_queue_committing(stream->queue);
}

/* No record is in flight, or in a transaction that is not committed. */
static inline bool stream_is_producer_settled(const struct stream *stream)
{
	return !record_queue_under_way(stream->queue) && !record_queue_written(stream->queue);
}

/*
 * Later records pass the refused one. Once its cause is repaired, another owner sends it after
 * them, and so in another epoch. The log must have that epoch before the later records pass.
 */
static inline bool stream_must_leave_epoch(const struct stream *stream)
{
	return record_queue_is_stopped(stream->queue) && stream->logged_epoch == stream->epoch;
}

static inline bool stream_writes_row(enum stream_call call)
{
	return call == STREAM_TICK || call == STREAM_RENEW;
}

static inline bool stream_owns_shard(const struct stream *stream)
{
	return stream->state == STREAM_OWNER || stream->state == STREAM_UNSURE;
}

/* --- stream_calls.c -------------------------------------------------------------------------- */
/* A log row would note acknowledged records or published windows. */
bool stream_has_progress(const struct stream *stream);
/*
 * All windows whose rows may be found are closed. The found records are forgotten after the next
 * look for kept back rows that has none to list: a failover may have brought back rows that were
 * gone.
 */
bool stream_has_left_found_windows(const struct stream *stream);
/* When the next call on the idle log connection is due; INT64_MAX: only after an event. */
int64_t stream_log_call_due(struct stream *stream, int64_t now);

/* --- stream_answers.c ------------------------------------------------------------------------ */
/*
 * Looks for a window at that time, or later if many are open. With 32 open windows the next look is
 * 16 ms away, with 128 about 800 ms.
 */
void stream_poll_at(struct stream *stream, int64_t now, int64_t at);
/* Milliseconds until the next try after this many failures. */
int64_t stream_retry_delay(int failures);

/* --- stream_reading.c ------------------------------------------------------------------------ */
/* Adds the newest window; `acked_id` is 0 if none of its rows is published. */
struct window *stream_push_window(struct stream *stream, int64_t tick, int64_t acked_id);
/* The window that is being read; NULL: all are complete. */
struct window *stream_reading_window(const struct stream *stream);
/* Takes acknowledged and parked records from the front, and notes them in their windows. */
void stream_pass_acked(struct stream *stream);
/* The number of oldest windows that are published to their end. */
int stream_published_windows(const struct stream *stream);
/* Drops that many of the oldest windows: a log row says that they are published. */
void stream_close_windows(struct stream *stream, int count);
/* Memory has room for one more page. */
bool stream_has_page_room(const struct stream *stream);
/* The window that is being read has further rows, and an owner may read them. */
bool stream_wants_page(const struct stream *stream, int64_t now);
