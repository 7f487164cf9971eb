#pragma once
/*
 * How often messages of a key may come: limits, from lines of a configuration. A public header of
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
 * sliding: at most `most` in any stretch of time of length `within`, to the millisecond. The
 * stretch is half-open: of two messages that are exactly `within` apart none contains both.
 * daily: at most `most` in a day of the calendar of `zone` (UTC unless given), which has 23 or 25
 * hours where the clock changes.
 *
 * A message is judged by all rules, then recorded in all or none of them. One that a rule refuses
 * (drop, dead-letter) is recorded nowhere: it takes no room of any limit. What only exceeds rules
 * with action=count passes and is recorded.
 *
 * Time is that of the record, the same on redelivery, and never beyond now. Records may come in
 * any order: each is compared with those before and behind it. That is exact for records that are
 * at most `late` older than the newest one (10m unless given); an older one is compared with what
 * is still known, and may pass where it should not; none is refused that should pass.
 *
 * A message of a (topic, partition, offset) that was recorded passes again and is not counted
 * again, as long as it is remembered (`within`, or its day, and `late`). One that was refused is
 * judged and refused again, beside what was recorded since, so perhaps by an earlier rule. What was
 * recorded is durable after the next checkpoint; commit no offset before.
 *
 * docs/rules.md has all settings, the keys, and what is kept. Owned by one thread at a time.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "outbox_public.h"

struct outbox_rules;

/*
 * path: a folder of these rules alone; it is made if it is missing, its parent is there. Lines may
 * be others than the last time: a rule is known by its name, and keeps what is known of it; a new
 * one knows nothing. With another key, it begins anew.
 *
 * NULL: OUTBOX_CONFIG for a line, with its number, or for what is in the folder; OUTBOX_FENCED when
 * another process has it open; OUTBOX_RETRY, OUTBOX_DENIED for the disk.
 */
OUTBOX_PUBLIC struct outbox_rules *outbox_rules_open(
    const char *path, const char *const *lines, size_t count, struct outbox_error *error);
/* What was recorded since the last checkpoint may be lost. Takes NULL. */
OUTBOX_PUBLIC void outbox_rules_close(struct outbox_rules *rules);

struct outbox_rules_header {
	const char *name;
	const void *value; /* NULL: the header counts as missing */
	size_t length;
};

struct outbox_rules_message {
	const char *topic;
	int32_t partition;
	int64_t offset; /* -1: none, and a redelivery is not recognised */
	int64_t
	    time_ms; /* of the record, since 1970; below 0: now. What is later than now is now */
	const void *key; /* NULL: none */
	size_t key_length;
	const void *payload; /* NULL: none */
	size_t payload_length;
	const struct outbox_rules_header *headers; /* of several with a name the last counts */
	size_t header_count;
};

enum outbox_rules_action { OUTBOX_RULES_PASS, OUTBOX_RULES_DROP, OUTBOX_RULES_DEAD_LETTER };

struct outbox_rules_verdict {
	enum outbox_rules_action action;
	/*
	 * The first rule, in the order of the lines, that refuses it; if it passes, the first that
	 * counts it as exceeding. Its number from 0, and its name, which lives as long as the
	 * rules. -1 and NULL: none.
	 */
	int rule;
	const char *name;
	bool again; /* it was recorded before, and passes as it did then */
};

/*
 * ret_verdicts: one for each message, in their order; each is judged after those before it are
 * recorded. OUTBOX_RETRY: the disk has no room; some of them may be recorded, and checking all of
 * them again counts no message twice that has an offset.
 */
OUTBOX_PUBLIC bool outbox_rules_check(struct outbox_rules *rules,
    const struct outbox_rules_message *messages, size_t count,
    struct outbox_rules_verdict *ret_verdicts, struct outbox_error *error);

/*
 * Makes durable what was recorded. offset: that of the next message, all before it were checked;
 * -1: not known, or messages are of several partitions. OUTBOX_RETRY: again later; OUTBOX_FATAL:
 * the folder was removed, or the disk failed in a way that only opening anew can judge.
 */
OUTBOX_PUBLIC bool outbox_rules_checkpoint(
    struct outbox_rules *rules, int64_t offset, struct outbox_error *error);

struct outbox_rules_stats {
	size_t rules;
	/* what is remembered now, of all rules */
	uint64_t keys, occurrences, memory_bytes, disk_bytes;
	int64_t newest_ms; /* the time of the newest message that was recorded; -1: none */
	int64_t offset;    /* the largest that a checkpoint made durable; -1: none */
	/* messages since it was opened */
	uint64_t passed, dropped, dead_lettered;
	uint64_t again; /* of those that passed, recorded before */
};
OUTBOX_PUBLIC void outbox_rules_stats(
    const struct outbox_rules *rules, struct outbox_rules_stats *ret_stats);

struct outbox_rule_stats {
	const char *name;
	uint64_t keys, occurrences;
	/* messages since it was opened: judged; beyond the limit; without a key for this rule */
	uint64_t seen, exceeded, keyless;
};
/* number: of the line, from 0. False: there is no such rule. */
OUTBOX_PUBLIC bool outbox_rule_stats(
    const struct outbox_rules *rules, size_t number, struct outbox_rule_stats *ret_stats);
