#pragma once
/*
 * The topics' side of `verify`: each topic is read from its first offset to its end, or, for a
 * range of time, a part that certainly begins before the records of its rows, and ends some time
 * after it. Blocking.
 */
#include "config.h"
#include "progress_watch.h"
#include "verify_engine.h"
#include "verify_table.h"

struct verify_topics;

/*
 * publisher, and its identity in the database (a uuid as text), must outlive it: only records with
 * both in their position are judged. sequence: the payload's field that counts up with each key, or
 * NULL. range: of rows; a record without a row is looked at when its timestamp lies in it.
 */
struct verify_topics *verify_topics_create(const struct publisher_settings *publisher,
    const char *identity, const char *sequence, const struct verify_range *range,
    const struct progress_watch *watch);
void verify_topics_destroy(struct verify_topics *topics);

/* One more topic to read; a name that is known already is fine. */
void verify_topics_add(void *topics, const char *name, size_t length);

/* A record without a row. The table is queried for many of them at once. */
struct verify_unknown {
	int64_t id, offset, timestamp_ms;
	uint64_t event;
	int32_t partition;
	const char *topic;
};
enum { VERIFY_UNKNOWNS = 1000 };

/*
 * Reads all topics up to their current ends, or up to that of the range. Calls unknown with records
 * that have no row, at most VERIFY_UNKNOWNS at once; if it returns false, the reading ends with its
 * error. A topic that does not exist has no records.
 */
bool verify_topics_read(struct verify_topics *topics, struct verify_engine *engine,
    bool (*unknown)(
	void *context, const struct verify_unknown *records, int count, struct err *err),
    void *context, struct err *err) MUST_CHECK;

/*
 * Reads on behind the range, to the current ends of the topics: rows that were published late, for
 * example after an operator's retry, have their records there. Without a range nothing is left.
 */
bool verify_topics_read_on(struct verify_topics *topics, struct verify_engine *engine,
    bool (*unknown)(
	void *context, const struct verify_unknown *records, int count, struct err *err),
    void *context, struct err *err) MUST_CHECK;

/*
 * May the record of this row have existed and be deleted by now (retention, compaction)? key NULL:
 * any partition; partition -1: by the key.
 */
bool verify_topics_expired(const struct verify_topics *topics, const char *topic,
    size_t topic_length, const void *key, size_t key_length, int32_t partition, int64_t id);

/* Do the topic's records lack the header that names their row ([topic] headers = none)? */
bool verify_topics_unmarked(
    const struct verify_topics *topics, const char *topic, size_t topic_length);

struct verify_topics_figures {
	int64_t records; /* records of this publisher; each counts once */
	int64_t others;  /* without its position */
	int topics, missing;
};
struct verify_topics_figures verify_topics_figures(const struct verify_topics *topics);
/* The i-th topic's name; NULL beyond the last. *ret_missing: it does not exist. */
const char *verify_topics_name(const struct verify_topics *topics, int index, bool *ret_missing);
