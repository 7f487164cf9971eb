#pragma once
/*
 * Sends dead letters of a [deliver] section back to the topics of their messages.
 *
 * Dead letters cannot be taken out of their topic. A consumer group of its own, GROUP.redriven,
 * notes which of them went back. It commits an offset and a list of later offsets, in the form of
 * the inbox's commits (commit_text.h). A dead letter counts as gone back when the broker has
 * acknowledged it. A process that dies before it has noted this sends the dead letter once more,
 * with the same outbox-leg, by which dedup knows the copy.
 */
#include "config.h"

struct consumer_record;

/* Place of a record in the dead-letter topic. */
struct redrive_place {
	int32_t partition;
	int64_t offset;
};

/* For qsort, by partition and offset. */
int redrive_compare_places(const void *a, const void *b);

/*
 * All conditions must hold; a text that is NULL restricts nothing. The texts and places must
 * outlive the redrive.
 */
struct redrive_filter {
	const char *id;         /* the id of the message for the application, or its outbox-id */
	const char *key;        /* of the record */
	const char *topic;      /* that the message was in first */
	const char *reason;     /* a part of the dead letter's reason */
	int64_t from_us, to_us; /* of the record's timestamp; the second end is no part of it */
	int64_t limit;          /* at most so many */
	const struct redrive_place *places; /* these only, in their order; NULL: all */
	int place_count;
};

/* A dead letter that matches. Its texts come from others, and are valid during the call. */
struct redrive_found {
	int32_t partition;
	int64_t offset;
	const char *topic, *id, *attempts, *reason; /* NULL: it has none; id is never NULL */
	bool gone;                                  /* it went back before */
	const struct consumer_record *record;
};

/* The section of this name; NULL: there is none, or it has no dead letters. */
const struct config_deliver *redrive_section(
    const struct config *config, const char *name, struct err *err);

struct redrive;

/* Reads which dead letters went back before. Blocks. NULL: *err says why. */
struct redrive *redrive_open(
    const struct config_deliver *section, const struct redrive_filter *filter, struct err *err);
void redrive_close(struct redrive *redrive); /* NULL is fine */

/*
 * Calls see with each dead letter that matches and did not go back before. ERR_REJECT: one of them
 * cannot go back, because the section does not read its topic, or its return could not be noted.
 * Blocks.
 */
bool redrive_find(struct redrive *redrive,
    void (*see)(void *context, const struct redrive_found *found), void *context,
    struct err *err) MUST_CHECK;

/*
 * Limits what is called next: redrive_find ends after ms milliseconds, or leaves out what comes
 * behind the places; redrive_send ends after the same time, or sends at most so many.
 */
struct redrive_limits {
	int64_t ms;
	int64_t most;
	const int64_t *ends; /* by partition: only offsets before; NULL: all */
	int end_count;       /* of other partitions nothing */
};
void redrive_limit(struct redrive *redrive, const struct redrive_limits *limits);
/* The offset behind the last dead letter of the partition that redrive_find found; 0: none. */
int64_t redrive_end(const struct redrive *redrive, int partition);
int redrive_partitions(const struct redrive *redrive);

/*
 * Calls see with each dead letter that matches, also with those that went back before, by partition
 * and offset from `from` on, until see returns false or the time is over. *ret_next: the first
 * place that was not seen; partition -1: every record was. Fails if no record came in time. Blocks.
 */
bool redrive_page(struct redrive *redrive, struct redrive_place from,
    bool (*see)(void *context, const struct redrive_found *found), void *context,
    struct redrive_place *ret_next, struct err *err) MUST_CHECK;

/*
 * Sends back what redrive_find found, and notes it. Calls unnoted with each partition where too
 * many single dead letters went back to note all of them. Blocks; after 60 s without an
 * acknowledgement ERR_RETRY.
 */
bool redrive_send(struct redrive *redrive, void (*unnoted)(void *context, int partition),
    void *context, struct err *err) MUST_CHECK;

struct redrive_figures {
	int64_t matching;    /* did not go back before */
	int64_t gone_before; /* match, and went back before */
	int64_t sent;        /* acknowledged */
	bool late;           /* redrive_find ended before the end of the topic */
};
struct redrive_figures redrive_figures(const struct redrive *redrive);
