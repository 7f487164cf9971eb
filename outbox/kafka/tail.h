#pragma once
/*
 * Reads partitions from a known offset to their end, next to an event loop: finds the records that
 * are in Kafka already, at a take-over and after a new producer was created. It costs nothing while
 * no question is open: the client (threads, connections) is created at the first question and
 * destroyed idle_ms after the last answer.
 *
 * One thread owns it. Nothing here waits for the network; creating the client takes a few
 * milliseconds, a question some microseconds.
 */
#include "consumer.h"
#include "errors.h"
#include "kafka_settings.h"

struct tail;

enum { TAIL_FROM_END = -1 };

/*
 * No I/O. isolation: "read_uncommitted"; or "read_committed", which tells committed records only.
 * kafka and isolation must outlive it.
 */
struct tail *tail_create(
    const struct kafka_settings *kafka, const char *isolation, int64_t idle_ms);
/* Waits at most wait_ms for the client's threads, which may go on in the background. NULL: fine. */
void tail_destroy(struct tail *tail, int wait_ms);

/*
 * Reads the partition from `offset` to its present end or a later one: every record that was
 * acknowledged before comes as TAIL_RECORD ahead of TAIL_END. TAIL_FROM_END: returns only the end.
 * A second question for a partition replaces the first one, which gets no more events.
 *
 * With read_committed the answer waits for the end of every transaction, foreign ones too, that had
 * records there at the time of the question, because committed records may lie behind them. A
 * commit does not wait for its markers, by which it becomes visible; init_transactions does.
 * TAIL_FROM_END does not wait, and its end is the last stable offset.
 */
struct tail_question {
	const char *topic;
	int32_t partition;
	int64_t offset;
	int64_t least;   /* an end before this offset is TAIL_BEYOND, as one before `offset` is */
	uint64_t number; /* the caller's: every event of the question carries it */
};
bool tail_ask(struct tail *tail, const struct tail_question *question, struct err *err) MUST_CHECK;
/* Ends the partition's question: no further event of it comes. */
void tail_drop(struct tail *tail, const char *topic, int32_t partition);
void tail_forget(struct tail *tail); /* all questions */

/* Readable when tail_next has something to do; -1 while there is no question. */
int tail_fd(const struct tail *tail);

struct tail_event {
	enum {
		TAIL_RECORD,
		TAIL_END, /* was read to its end */
		/* has an end before that offset, or before `least`: truncated, or made anew */
		TAIL_BEYOND,
		/*
		 * With failure. ERR_RETRY: it keeps trying by itself, and may report it
		 * again; topic NULL then: it concerns the whole cluster. Any other kind: this
		 * question is given up (ERR_REJECT: there is no such topic or partition;
		 * ERR_DENIED: no right to read it).
		 */
		TAIL_FAILED,
	} kind;
	const char *topic;
	int32_t partition;
	uint64_t number;               /* of its question */
	struct consumer_record record; /* TAIL_RECORD */
	/*
	 * TAIL_END, TAIL_BEYOND. asked: the offset that was asked for. end: the offset after the
	 * last one. begin: the first offset there was to read, larger than the asked-for one when
	 * retention had removed some (BEYOND: the first one of the partition; FROM_END: the end).
	 */
	int64_t asked, begin, end;
	struct err failure;
};

/*
 * Returns the next event; false: none now. Call it when tail_fd is readable, until it returns
 * false, and at tail_wait. Pointers in the event are valid until the next call of any function
 * here.
 */
bool tail_next(struct tail *tail, int64_t now, struct tail_event *ret_event);

/* When (clock_ms) to call tail_next though nothing came; INT64_MAX: never. */
int64_t tail_wait(const struct tail *tail);

/* Is there a client now? For tests and status. */
bool tail_is_open(const struct tail *tail);
/*
 * Partitions that its client has memory for: those with a question, and at most 1,000
 * others, however many were asked for before. For tests and status.
 */
int tail_partitions(const struct tail *tail);
