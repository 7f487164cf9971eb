#pragma once
/*
 * Limits on how often messages of a key may come, from lines of a configuration. A public header of
 * liboutbox.
 *
 *   const char *lines[] = {
 *       "sliding name=burst most=5 within=10s key=\"topic,header:user\" action=drop",
 *       "daily name=quota most=3 zone=Europe/Berlin key=json:$.user.id action=dead-letter"};
 *   struct outbox_rules *rules =
 *       outbox_rules_open("/var/lib/billing/rules", lines, 2, &error);
 *   ...
 *   outbox_rules_check(rules, &message, 1, &verdict, &error);
 *   handle it, drop it, or send it to a dead-letter topic, as verdict.action says
 *   outbox_rules_checkpoint(rules, offset, &error);   then commit the offset
 *
 * sliding: at most `most` messages in any interval of length `within`, to the millisecond. The
 * interval is half-open: no interval contains two messages that are exactly `within` apart. daily:
 * at most `most` in a day of the calendar of `zone` (UTC unless given), which has 23 or 25 hours
 * where the clock changes.
 *
 * All rules judge a message, and then all or none of them record it. A message that a rule refuses
 * (drop, dead-letter) is recorded nowhere: it uses up no limit. A message that exceeds only rules
 * with action=count passes and is recorded.
 *
 * The time of a message is that of its record, the same on redelivery, and never beyond now.
 * Records may come in any order: each is compared with the ones before and behind it. This is exact
 * for records that are at most `late` older than the newest recorded one (default 10m). An older
 * record is compared with the occurrences that are still remembered, and may pass where it should
 * not; no record is refused that should pass.
 *
 * A message whose (topic, partition, offset) was recorded passes again and is not counted again, as
 * long as it is remembered (`within`, or its day, and `late`). A refused message is judged and
 * refused again, but compared with newer records too, so perhaps by an earlier rule. Records are
 * durable after the next checkpoint; commit no offset before.
 *
 * docs/guide/rules.md describes all settings, the keys, and the stored data. Owned by one thread at
 * a time.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "outbox_public.h"

struct outbox_rules;

/*
 * path: a folder for these rules alone; it is created if it is missing, but its parent must exist.
 * Lines may differ from the last time: a rule is identified by its name and keeps its records; a
 * new rule has none. A rule with another key starts without records.
 *
 * NULL: OUTBOX_CONFIG if a line is wrong (the error has its number) or the folder's content is;
 * OUTBOX_FENCED if another process has the folder open; OUTBOX_RETRY, OUTBOX_DENIED for disk
 * errors.
 */
OUTBOX_PUBLIC struct outbox_rules *outbox_rules_open(
    const char *path, const char *const *lines, size_t count, struct outbox_error *error);

/*
 * The records may also be on a server that processes share: then a limit holds for all messages of
 * a key, in whichever partition and process they are judged. A line such as
 *
 *   redis url=redis://127.0.0.1 name=push
 *
 * Instead of lines there may be one JSON object, in the form of a push platform:
 *
 *   {"deduplication_10":{"num":1,"time":300},"deduplication_20":{"num":5}}
 *
 * deduplication_10: messages with the same user and content, at most num in any `time` seconds.
 * deduplication_20: messages with the same user and channel, at most num a day. user, content,
 * channel: expressions as in a rule's `key`; defaults: none, payload, topic. zone: of the day.
 */
struct outbox_rules_settings {
	const char *path;  /* the folder; without a store */
	const char *store; /* the line; NULL: the folder */
	const char *const *lines;
	size_t count;
	const char *user, *content, *channel, *zone; /* NULL: the default */
};
/* Errors as of outbox_rules_open; OUTBOX_RETRY also if the server is away. */
OUTBOX_PUBLIC struct outbox_rules *outbox_rules_open_as(
    const struct outbox_rules_settings *settings, struct outbox_error *error);
/*
 * Replaces the lines. A rule keeps its records and its figures if a rule of the same name and key
 * is among the new ones, as when the rules are opened with other lines; a verdict's name is valid
 * until then. On failure nothing is changed: OUTBOX_CONFIG, a line is wrong; OUTBOX_RETRY: the disk
 * has no room.
 */
OUTBOX_PUBLIC bool outbox_rules_change(
    struct outbox_rules *rules, const char *const *lines, size_t count, struct outbox_error *error);
/* Closes the rules; records since the last checkpoint may be lost. NULL is fine. */
OUTBOX_PUBLIC void outbox_rules_close(struct outbox_rules *rules);

struct outbox_rules_header {
	const char *name;
	const void *value; /* NULL counts as a missing header */
	size_t length;
};

struct outbox_rules_message {
	const char *topic;
	int32_t partition;
	int64_t offset; /* -1: none, and a redelivery is not recognised */
	int64_t
	    time_ms; /* since 1970, of the record; below 0: now. A time after now counts as now */
	const void *key; /* NULL: none */
	size_t key_length;
	const void *payload; /* NULL: none */
	size_t payload_length;
	const struct outbox_rules_header *headers; /* the last of several with one name counts */
	size_t header_count;
};

enum outbox_rules_action { OUTBOX_RULES_PASS, OUTBOX_RULES_DROP, OUTBOX_RULES_DEAD_LETTER };

struct outbox_rules_verdict {
	enum outbox_rules_action action;
	/*
	 * The first rule, in the order of the lines, that refuses the message; if it passes, the
	 * first rule that counts it as exceeding. The rule's number from 0, and its name, which
	 * lives as long as the rules. -1 and NULL: none.
	 */
	int rule;
	const char *name;
	bool again; /* it was recorded before, and passes again */
};

/*
 * ret_verdicts: one for each message, in their order; each message is judged after the earlier ones
 * are recorded. OUTBOX_RETRY: the disk has no room, or the server is away; some messages may be
 * recorded, and checking all of them again counts no message with an offset twice. OUTBOX_FATAL:
 * the server has lost the records; opening the rules again begins without them.
 */
OUTBOX_PUBLIC bool outbox_rules_check(struct outbox_rules *rules,
    const struct outbox_rules_message *messages, size_t count,
    struct outbox_rules_verdict *ret_verdicts, struct outbox_error *error);

/*
 * Makes all records durable. offset: that of the next message, when all messages before it were
 * checked; -1: unknown, or messages are of several partitions. OUTBOX_RETRY: try again later;
 * OUTBOX_FATAL: the folder was removed, or the disk failed in a way that only opening the rules
 * again can judge.
 */
OUTBOX_PUBLIC bool outbox_rules_checkpoint(
    struct outbox_rules *rules, int64_t offset, struct outbox_error *error);

struct outbox_rules_stats {
	size_t rules;
	/* records that all rules remember now */
	uint64_t keys, occurrences, memory_bytes, disk_bytes;
	int64_t newest_ms; /* time of the newest recorded message; -1: none */
	int64_t offset;    /* the largest offset that a checkpoint made durable; -1: none */
	/* messages since it was opened */
	uint64_t passed, dropped, dead_lettered;
	uint64_t again; /* passed messages that had been recorded before */
};
OUTBOX_PUBLIC void outbox_rules_stats(
    const struct outbox_rules *rules, struct outbox_rules_stats *ret_stats);

struct outbox_rule_stats {
	const char *name;
	uint64_t keys, occurrences;
	/* messages since it was opened: judged; beyond the limit; without a key for this rule */
	uint64_t seen, exceeded, keyless;
};
/* number: position of the line, from 0. False: there is no such rule. */
OUTBOX_PUBLIC bool outbox_rule_stats(
    const struct outbox_rules *rules, size_t number, struct outbox_rule_stats *ret_stats);
