/*
 * Sends dead letters of a [deliver] section back to their topics, each once. redrive_find reads and
 * counts, redrive_send sends and stores offsets. redrive_page only shows them.
 */
#include "redrive.h"

#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "clock.h"
#include "commit_text.h"
#include "committed.h"
#include "consumer.h"
#include "deliver_event.h"
#include "redelivery.h"
#include "rule_key.h"
#include "text.h"

enum { WAIT_MS = 500, UNDER_WAY = 1000, STEP_MS = 100, GIVE_UP_MS = 60000, LIMITED_MS = 5000 };

DEFINE_OWNED(struct consumer, consumer_destroy)
DEFINE_OWNED(struct item, item_destroy)

struct part {
	struct offsets offsets; /* finished: dead letters that went back */
	int64_t upto;           /* behind the last one that redrive_find has found */
	int64_t low, high;      /* offsets of the topic at redrive_open */
};

struct redrive {
	const struct config_deliver *section;
	struct redrive_filter filter;
	struct committed *committed;
	struct redelivery *redelivery;
	struct rule_key *id_key; /* computes the id of a message, as the section says */
	struct part *parts; /* by partition; those that are added later wait for the next call */
	int part_count;

	struct redrive_limits limits;
	int64_t until_ms; /* INT64_MAX: no limit */

	bool sends;    /* this pass */
	int64_t limit; /* of this pass */
	void (*see)(void *context, const struct redrive_found *found);
	void *context;

	/* of redrive_page */
	bool (*show)(void *context, const struct redrive_found *found);
	struct redrive_place next; /* behind the last record that it has read */
	bool shown_all;            /* show returned false */

	struct redrive_figures figures;
	struct err err;
	bool failed;
};

/* --- which ---------------------------------------------------------------------------------- */

static char *header_of(const struct consumer_record *record, const char *name)
{
	const void *value;
	size_t length;
	if (!consumer_header(record, name, &value, &length) || !value)
		return NULL;
	return xformat("%.*s", (int)length, (const char *)value);
}

static bool has_header(const struct consumer_record *record, const char *name, const char *wanted)
{
	owned_text char *found = header_of(record, name);
	return !wanted || text_equal(found, wanted);
}

/* By which the application knows the message (deliver_event.h). The caller frees. */
static char *event_id(const struct redrive *redrive, const struct consumer_record *record)
{
	static const struct deliver_event_defaults defaults = {"", ""};
	OWNED(owned_item_destroy) struct item *item = item_create(NULL, record);
	struct outbox_inbox_message *message = &item->public;
	owned_text char *topic = header_of(record, "outbox-origin-topic");
	const struct outbox_rules_message found = {.topic = topic ? topic : record->topic,
	    .key = message->key,
	    .key_length = message->key_length,
	    .payload = message->payload,
	    .payload_length = message->payload_length,
	    .headers = message->headers,
	    .header_count = message->header_count};
	struct rule_message asked = {.message = &found};
	OWNED(text_finish) struct text id = {0};
	struct deliver_event event;

	message->topic = record->topic;
	if (rule_key_add_id(redrive->id_key, &asked, &id)) {
		message->id = id.data;
		message->id_length = id.length;
	}
	rule_message_finish(&asked);
	deliver_event_init(&event, message, &defaults);
	char *name = xstrdup(event.id);
	deliver_event_finish(&event);
	return name;
}

static bool has_wanted_id(const struct redrive *redrive, const struct consumer_record *record)
{
	const char *wanted = redrive->filter.id;
	owned_text char *id = wanted ? event_id(redrive, record) : NULL;
	return !wanted || text_equal(id, wanted) || has_header(record, "outbox-id", wanted);
}

int redrive_compare_places(const void *a, const void *b)
{
	const struct redrive_place *one = a, *other = b;

	if (one->partition != other->partition)
		return one->partition < other->partition ? -1 : 1;
	return one->offset < other->offset ? -1 : one->offset > other->offset;
}

static bool is_place_wanted(const struct redrive *redrive, const struct consumer_record *record)
{
	const struct redrive_filter *filter = &redrive->filter;
	const struct redrive_place place = {record->partition, record->offset};

	return !filter->places || bsearch(&place, filter->places, (size_t)filter->place_count,
				      sizeof place, redrive_compare_places);
}

static bool is_redrive_wanted(const struct redrive *redrive, const struct consumer_record *record)
{
	const char *key = redrive->filter.key;
	const char *reason = redrive->filter.reason;
	if (!is_place_wanted(redrive, record))
		return false;

	owned_text char *why = header_of(record, "outbox-reason");
	int64_t at_us = record->timestamp_ms * 1000;

	if (key && (!record->key || record->key_length != strlen(key) ||
		       memcmp(record->key, key, record->key_length) != 0))
		return false;
	if (reason && (!why || !strstr(why, reason)))
		return false;
	return has_header(record, "outbox-group", redrive->section->group) &&
	       has_header(record, "outbox-origin-topic", redrive->filter.topic) &&
	       at_us >= redrive->filter.from_us && at_us < redrive->filter.to_us &&
	       has_wanted_id(redrive, record);
}

/* Calls see, or show of redrive_page. False: show wants no more. */
static bool report_dead_letter(
    struct redrive *redrive, const struct consumer_record *record, bool gone)
{
	owned_text char *id = event_id(redrive, record);
	owned_text char *topic = header_of(record, "outbox-origin-topic");
	owned_text char *attempts = header_of(record, "outbox-attempts");
	owned_text char *reason = header_of(record, "outbox-reason");
	const struct redrive_found found = {.partition = record->partition,
	    .offset = record->offset,
	    .topic = topic,
	    .id = id,
	    .attempts = attempts,
	    .reason = reason,
	    .gone = gone,
	    .record = record};

	if (redrive->show)
		return redrive->show(redrive->context, &found);
	redrive->see(redrive->context, &found);
	return true;
}

/* --- sending -------------------------------------------------------------------------------- */

static bool fail_redrive(struct redrive *redrive, const struct err *err)
{
	if (!redrive->failed)
		redrive->err = *err;

	/* the first error is the cause; later ones may only follow from it */
	redrive->failed = true;
	return false;
}

static void take_acknowledged(struct redrive *redrive)
{
	struct err why;
	bool refused;

	/* goes on after a refusal: those that are acknowledged still count as gone back */
	for (struct item *item; (item = redelivery_take(redrive->redelivery, &refused, &why));) {
		if (refused)
			fail_redrive(redrive, &why);
		else {
			offsets_finished(
			    &redrive->parts[item->public.partition].offsets, item->public.offset);
			redrive->figures.sent++;
		}
		item_destroy(item);
	}
}

/*
 * Waits until at most `most` of them are in flight. A refusal does not end the wait: the broker may
 * have written the others, and those that are not noted go back again with the next call.
 */
static bool send_until_few(struct redrive *redrive, size_t most)
{
	struct err err;
	int64_t silence = redrive->until_ms == INT64_MAX ? GIVE_UP_MS : LIMITED_MS;
	int64_t until = clock_ms() + silence;
	size_t before = redelivery_count(redrive->redelivery);

	while (redelivery_count(redrive->redelivery) > most) {
		struct pollfd fd = {redelivery_fd(redrive->redelivery), POLLIN, 0};
		redelivery_step(redrive->redelivery, clock_ms());
		take_acknowledged(redrive);
		size_t now = redelivery_count(redrive->redelivery);
		/* the limit is for silence: a long list may take longer, as long as some are
		 * acknowledged */
		if (now < before)
			until = clock_ms() + silence;
		else if (clock_ms() > until) {
			/* nothing is in flight now, so that no later wait takes as long again */
			redelivery_drop(redrive->redelivery);
			err_set(&err, ERR_RETRY, "no broker acknowledges a dead letter");
			return fail_redrive(redrive, &err);
		}
		before = now;
		if (now > most)
			poll(&fd, 1, STEP_MS);
	}
	return !redrive->failed;
}

static bool send_back(struct redrive *redrive, const struct consumer_record *record)
{
	char *topic = header_of(record, "outbox-origin-topic");
	struct item *item = item_create(NULL, record);

	item->public.topic = redrive->section->dead_letter_topic;
	item->owned_id = topic; /* as long as the dead letter */
	redelivery_send(redrive->redelivery, item, topic, REDELIVERY_TO_ORIGIN);
	/* bounds the memory: each dead letter is kept until it is acknowledged */
	return send_until_few(redrive, UNDER_WAY);
}

/* --- passes --------------------------------------------------------------------------------- */

/* The first pass checks this, because a refusal after the operator's yes comes too late. */
static bool check_redrive(
    struct redrive *redrive, const struct part *part, const struct consumer_record *record)
{
	owned_text char *topic = header_of(record, "outbox-origin-topic");
	struct err err;

	/* no consumer of the section would read the record in that topic */
	if (!topic || !config_list_has(&redrive->section->topics, topic)) {
		err_set(&err, ERR_REJECT,
		    "dead letter %" PRId32 "/%" PRId64 " is of topic %s, which [deliver \"%s\"] "
		    "does not read: add it to its topics, or leave the dead letter out",
		    record->partition, record->offset, topic ? topic : "?", redrive->section->name);
		return fail_redrive(redrive, &err);
	}

	/* its return would not be noted, and it would go back again with each call */
	if (record->offset >= part->offsets.next) {
		err_set(&err, ERR_REJECT,
		    "dead letter %" PRId32 "/%" PRId64 " is %d offsets or more behind %" PRId32
		    "/%" PRId64 ", which did not go back: send that one back first, or delete the "
		    "records up to it",
		    record->partition, record->offset, OFFSETS_REACH, record->partition,
		    part->offsets.done);
		return fail_redrive(redrive, &err);
	}
	return true;
}

static bool is_behind_end(const struct redrive *redrive, const struct consumer_record *record)
{
	const struct redrive_limits *limits = &redrive->limits;

	return limits->ends && (record->partition >= limits->end_count ||
				   record->offset >= limits->ends[record->partition]);
}

static bool see_dead_letter(void *context, const struct consumer_record *record)
{
	struct redrive *redrive = context;

	if (redrive->figures.matching >= redrive->limit)
		return false;

	/* the partition was added after the offsets were read: nothing is known about it */
	if (record->partition >= redrive->part_count || is_behind_end(redrive, record))
		return true;

	struct part *part = &redrive->parts[record->partition];
	/* only dead letters that the first pass has reported go back, even if others came since */
	if (redrive->sends && record->offset >= part->upto)
		return true;

	bool gone = offsets_is_finished(&part->offsets, record->offset);
	/* the first pass takes each record: those that are not wanted stay unfinished. It finishes
	 * none, so behind the first record that is out of reach no other one is in reach */
	if (!redrive->sends && !gone && offsets_reaches(&part->offsets, record->offset))
		offsets_take(&part->offsets, record->offset);
	if (!is_redrive_wanted(redrive, record))
		return true;

	redrive->figures.gone_before += gone;
	if (gone)
		return true;

	redrive->figures.matching++;
	if (redrive->sends)
		return send_back(redrive, record);
	if (!check_redrive(redrive, part, record))
		return false;

	part->upto = record->offset + 1;
	return report_dead_letter(redrive, record, false);
}

static bool read_dead_letters(struct redrive *redrive, bool sends, struct err *err)
{
	const char *topics[] = {redrive->section->dead_letter_topic, NULL};
	OWNED(owned_consumer_destroy)
	struct consumer *consumer =
	    consumer_create(redrive->section->kafka, topics, "read_committed", err);
	bool at_end = false;

	redrive->sends = sends;
	redrive->figures.matching = redrive->figures.gone_before = 0;
	while (consumer && !at_end && !redrive->failed &&
	       redrive->figures.matching < redrive->limit && clock_ms() < redrive->until_ms)
		if (!consumer_read(consumer, WAIT_MS, see_dead_letter, redrive, &at_end, err))
			fail_redrive(redrive, err);
	if (!sends)
		redrive->figures.late = !at_end && clock_ms() >= redrive->until_ms;

	/* a dead letter that is acknowledged later is not noted, and would go back once more */
	send_until_few(redrive, 0);
	if (redrive->failed)
		*err = redrive->err;
	return consumer && !redrive->failed;
}

/* --- earlier redrives ----------------------------------------------------------------------- */

static bool read_part(struct redrive *redrive, const struct consumer_partition *at, struct err *err)
{
	struct part *part = &redrive->parts[at->partition];
	owned_text char *text = NULL;
	const char *finished, *mark;
	int64_t offset;

	if (!committed_read(redrive->committed, at->topic, at->partition, &offset, &text, err))
		return false;

	bool ours = commit_text_parse(text, &finished, &mark);
	bool stale = offset < at->low || offset > at->high; /* the topic was recreated, or cut */
	/* another program may use a group of this name; overwriting its offsets would lose them */
	if (!offsets_init(&part->offsets, stale ? at->low : offset, stale ? "" : finished) || !ours)
		return err_set(err, ERR_REJECT,
		    "group %s.redriven has committed what is no list of dead letters: delete that "
		    "group",
		    redrive->section->group);
	return true;
}

static bool read_parts(struct redrive *redrive, struct err *err)
{
	const char *topics[] = {redrive->section->dead_letter_topic, NULL};
	OWNED(owned_consumer_destroy)
	struct consumer *consumer =
	    consumer_create(redrive->section->kafka, topics, "read_committed", err);
	struct consumer_partition at;

	if (!consumer)
		return false;

	while (consumer_partition_at(consumer, redrive->part_count, &at))
		redrive->part_count++;
	redrive->parts = xcalloc((size_t)redrive->part_count + 1, sizeof *redrive->parts);
	for (int i = 0; consumer_partition_at(consumer, i, &at); i++) {
		redrive->parts[i].low = at.low;
		redrive->parts[i].high = at.high;
		if (!read_part(redrive, &at, err))
			return false;
	}
	return true;
}

static bool note_parts(struct redrive *redrive, void (*unnoted)(void *context, int partition),
    void *context, struct err *err)
{
	char text[COMMIT_TEXT_SIZE];

	for (int i = 0; i < redrive->part_count; i++) {
		const struct offsets *offsets = &redrive->parts[i].offsets;
		/* dead letters that the text leaves out would go back again in the next redrive */
		if (commit_text_write(offsets, "", text) >= COMMIT_TEXT_SIZE)
			unnoted(context, i);

		const struct subscription_place place = {
		    redrive->section->dead_letter_topic, i, offsets->done, text};
		if (!committed_write(redrive->committed, &place, err))
			return err_prefix(err, "what went back is not noted");
	}
	return true;
}

/* --- showing -------------------------------------------------------------------------------- */

static bool show_record(void *context, const struct consumer_record *record)
{
	struct redrive *redrive = context;
	const struct redrive_place place = {record->partition, record->offset};
	bool gone = record->partition < redrive->part_count &&
		    offsets_is_finished(&redrive->parts[record->partition].offsets, record->offset);

	/* the reader also reads other partitions, from their ends on */
	if (place.partition != redrive->next.partition || place.offset < redrive->next.offset)
		return true;
	redrive->shown_all =
	    is_redrive_wanted(redrive, record) && !report_dead_letter(redrive, record, gone);
	if (!redrive->shown_all)
		redrive->next.offset = place.offset + 1;
	return !redrive->shown_all && clock_ms() < redrive->until_ms;
}

/* Reads one partition from redrive->next on. */
static bool show_partition(struct redrive *redrive, struct err *err)
{
	const char *topics[] = {redrive->section->dead_letter_topic, NULL};
	int64_t *offsets = xcalloc((size_t)redrive->part_count, sizeof *offsets);
	struct consumer_range range = {INT64_MIN, INT64_MAX, offsets, redrive->part_count};
	struct redrive_place begin = redrive->next;
	bool at_end = false, good = true;

	for (int i = 0; i < redrive->part_count; i++)
		offsets[i] = i == begin.partition ? begin.offset : INT64_MAX;
	OWNED(owned_consumer_destroy)
	struct consumer *consumer =
	    consumer_create_range(redrive->section->kafka, topics, "read_committed", &range, err);
	while (consumer && good && !at_end && !redrive->shown_all && clock_ms() < redrive->until_ms)
		good = consumer_read(consumer, WAIT_MS, show_record, redrive, &at_end, err);
	free(offsets);
	if (!consumer || !good)
		return false;

	if (at_end && !redrive->shown_all)
		redrive->next = (struct redrive_place){begin.partition + 1, 0};
	return true;
}

bool redrive_page(struct redrive *redrive, struct redrive_place from,
    bool (*see)(void *context, const struct redrive_found *found), void *context,
    struct redrive_place *ret_next, struct err *err)
{
	struct redrive_place *next = &redrive->next;

	redrive->show = see;
	redrive->context = context;
	redrive->shown_all = false;
	*next = from;
	while (next->partition < redrive->part_count && !redrive->shown_all &&
	       clock_ms() < redrive->until_ms) {
		const struct part *part = &redrive->parts[next->partition];

		if (part->low >= part->high || next->offset >= part->high)
			*next = (struct redrive_place){next->partition + 1, 0};
		else if (!show_partition(redrive, err))
			return false;
	}
	redrive->show = NULL;

	if (next->partition >= redrive->part_count)
		next->partition = -1;
	*ret_next = *next;
	/* a page without progress would be asked for again and again */
	return redrive->shown_all || next->partition != from.partition ||
	       next->offset != from.offset ||
	       err_set(err, ERR_RETRY, "no broker sends the records of topic %s",
		   redrive->section->dead_letter_topic);
}

/* --- life ----------------------------------------------------------------------------------- */

const struct config_deliver *redrive_section(
    const struct config *config, const char *name, struct err *err)
{
	for (int i = 0; i < config->deliver_count; i++) {
		const struct config_deliver *section = &config->delivers[i];
		if (!text_equal(section->name, name))
			continue;
		if (section->dead_letter_topic[0])
			return section;
		err_set(err, ERR_CONFIG, "%s: [deliver \"%s\"] has no dead_letter_topic",
		    section->origin, name);
		return NULL;
	}

	err_set(err, ERR_CONFIG, "there is no section [deliver \"%s\"]", name);
	return NULL;
}

struct redrive *redrive_open(
    const struct config_deliver *section, const struct redrive_filter *filter, struct err *err)
{
	owned_text char *group = xformat("%s.redriven", section->group);
	struct redrive *redrive = xcalloc(1, sizeof *redrive);

	redrive->section = section;
	redrive->filter = *filter;
	redrive->until_ms = INT64_MAX;
	redrive->limits.most = INT64_MAX;
	redrive->id_key = rule_key_parse(section->id, err);
	redrive->committed = redrive->id_key ? committed_open(section->kafka, group, err) : NULL;
	redrive->redelivery = redelivery_create(section->kafka, section->group);
	if (redrive->committed && read_parts(redrive, err))
		return redrive;
	redrive_close(redrive);
	return NULL;
}

void redrive_close(struct redrive *redrive)
{
	if (!redrive)
		return;
	for (int i = 0; i < redrive->part_count; i++)
		offsets_finish(&redrive->parts[i].offsets);
	free(redrive->parts);
	redelivery_destroy(redrive->redelivery);
	committed_close(redrive->committed);
	rule_key_destroy(redrive->id_key);
	free(redrive);
}

bool redrive_find(struct redrive *redrive,
    void (*see)(void *context, const struct redrive_found *found), void *context, struct err *err)
{
	redrive->see = see;
	redrive->context = context;
	redrive->limit = redrive->filter.limit;
	return read_dead_letters(redrive, false, err);
}

bool redrive_send(struct redrive *redrive, void (*unnoted)(void *context, int partition),
    void *context, struct err *err)
{
	struct err noting;
	/* not that of the filter: the passes read partitions by turns, each in its own order */
	redrive->limit = redrive->limits.most;
	bool well = read_dead_letters(redrive, true, err);
	/* acknowledged dead letters are noted after an error too: the next call skips them */
	bool noted = note_parts(redrive, unnoted, context, well ? err : &noting);
	return well && noted;
}

void redrive_limit(struct redrive *redrive, const struct redrive_limits *limits)
{
	redrive->limits = *limits;
	redrive->until_ms = clock_ms() + limits->ms;
}

int64_t redrive_end(const struct redrive *redrive, int partition)
{
	return redrive->parts[partition].upto;
}

int redrive_partitions(const struct redrive *redrive)
{
	return redrive->part_count;
}

struct redrive_figures redrive_figures(const struct redrive *redrive)
{
	return redrive->figures;
}
