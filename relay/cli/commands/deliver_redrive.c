#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "clock.h"
#include "commands.h"
#include "commit_text.h"
#include "committed.h"
#include "confirm.h"
#include "consumer.h"
#include "deliver_event.h"
#include "field.h"
#include "redelivery.h"
#include "rule_key.h"
#include "session.h"

/*
 * Dead letters cannot be taken out of their topic. Which of them went back is what a group of its
 * own, GROUP.redriven, has committed there: an offset, and beside it what is finished beyond it, in
 * the form of the inbox's commits (commit_text.h). A dead letter counts as gone back when the
 * broker has acknowledged it. A process that dies before it has noted that sends it once more, with
 * the same outbox-leg, by which dedup knows the copy.
 */
enum { WAIT_MS = 500, UNDER_WAY = 1000, SHOWN = 20, STEP_MS = 100, GIVE_UP_MS = 60000 };

DEFINE_OWNED(struct consumer, consumer_destroy)
DEFINE_OWNED(struct redelivery, redelivery_destroy)
DEFINE_OWNED(struct item, item_destroy)
DEFINE_OWNED(struct rule_key, rule_key_destroy)

struct part {
	struct offsets offsets; /* finished: gone back */
	int64_t upto;           /* behind the last one that the first pass has found */
};

struct redrive {
	const struct call *call;
	const struct config_deliver *section;
	struct committed *committed;
	struct redelivery *redelivery;
	const struct rule_key *id_key; /* what identifies a message of the section */
	struct part *parts; /* by partition; those that are added later wait for the next call */
	int part_count;
	int64_t from_us, to_us, limit;

	bool sends; /* this pass */
	int64_t matching, shown, sent, gone_before;
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
	const char *wanted = call_text(redrive->call, "id", NULL);
	owned_text char *id = wanted ? event_id(redrive, record) : NULL;
	return !wanted || text_equal(id, wanted) || has_header(record, "outbox-id", wanted);
}

static bool is_redrive_wanted(const struct redrive *redrive, const struct consumer_record *record)
{
	const char *key = call_text(redrive->call, "key", NULL);
	const char *reason = call_text(redrive->call, "reason-has", NULL);
	owned_text char *why = header_of(record, "outbox-reason");
	int64_t at_us = record->timestamp_ms * 1000;
	if (key && (!record->key || record->key_length != strlen(key) ||
		       memcmp(record->key, key, record->key_length) != 0))
		return false;
	if (reason && (!why || !strstr(why, reason)))
		return false;
	return has_header(record, "outbox-group", redrive->section->group) &&
	       has_header(record, "outbox-origin-topic", call_text(redrive->call, "topic", NULL)) &&
	       at_us >= redrive->from_us && at_us < redrive->to_us &&
	       has_wanted_id(redrive, record);
}

static void show_dead_letter(struct redrive *redrive, const struct consumer_record *record)
{
	owned_text char *id = event_id(redrive, record);
	owned_text char *topic = header_of(record, "outbox-origin-topic");
	owned_text char *attempts = header_of(record, "outbox-attempts");
	owned_text char *reason = header_of(record, "outbox-reason");
	OWNED(text_finish) struct text line = {0};
	if (redrive->shown++ >= SHOWN)
		return;
	text_addf(&line, "%" PRId32 "/%" PRId64 " of %s, id %s, tried %s times: %s",
	    record->partition, record->offset, topic ? topic : "?", id, attempts ? attempts : "?",
	    reason ? reason : "");
	OWNED(text_finish) struct text clean = {0};
	text_add_line(&clean, text_string(&line));
	puts(text_string(&clean));
}

/* --- sending -------------------------------------------------------------------------------- */

static bool fail_redrive(struct redrive *redrive, const struct err *err)
{
	if (!redrive->failed)
		redrive->err = *err;
	redrive->failed = true;
	return false;
}

static void take_acknowledged(struct redrive *redrive)
{
	struct err why;
	bool refused;
	for (struct item *item; (item = redelivery_take(redrive->redelivery, &refused, &why));) {
		if (refused)
			fail_redrive(redrive, &why);
		else {
			offsets_finished(
			    &redrive->parts[item->public.partition].offsets, item->public.offset);
			redrive->sent++;
		}
		item_destroy(item);
	}
}

/* Waits until at most `most` of them are in flight. */
static bool send_until_few(struct redrive *redrive, size_t most)
{
	struct err err;
	int64_t until = clock_ms() + GIVE_UP_MS;
	size_t before = redelivery_count(redrive->redelivery);
	while (!redrive->failed && redelivery_count(redrive->redelivery) > most) {
		struct pollfd fd = {redelivery_fd(redrive->redelivery), POLLIN, 0};
		redelivery_step(redrive->redelivery, clock_ms());
		take_acknowledged(redrive);
		size_t now = redelivery_count(redrive->redelivery);
		if (now < before)
			until = clock_ms() + GIVE_UP_MS;
		else if (clock_ms() > until) {
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
	struct err err;
	char *topic = header_of(record, "outbox-origin-topic");
	if (!topic || !config_list_has(&redrive->section->topics, topic)) {
		err_set(&err, ERR_REJECT,
		    "dead letter %" PRId32 "/%" PRId64 " is of topic %s, which [deliver \"%s\"] "
		    "does not read: add it to its topics, or leave the dead letter out",
		    record->partition, record->offset, topic ? topic : "?", redrive->section->name);
		free(topic);
		return fail_redrive(redrive, &err);
	}
	struct item *item = item_create(NULL, record);
	item->public.topic = redrive->section->dead_letter_topic;
	item->owned_id = topic; /* as long as the dead letter */
	redelivery_send(redrive->redelivery, item, topic, REDELIVERY_TO_ORIGIN);
	return send_until_few(redrive, UNDER_WAY);
}

/* --- passes --------------------------------------------------------------------------------- */

static bool see_dead_letter(void *context, const struct consumer_record *record)
{
	struct redrive *redrive = context;
	if (redrive->matching >= redrive->limit)
		return false;
	if (record->partition >= redrive->part_count)
		return true;
	struct part *part = &redrive->parts[record->partition];
	if (redrive->sends && record->offset >= part->upto)
		return true;
	bool gone = offsets_is_finished(&part->offsets, record->offset);
	if (redrive->sends && !gone)
		offsets_take(&part->offsets, record->offset);
	if (!is_redrive_wanted(redrive, record))
		return true;
	redrive->gone_before += gone;
	if (gone)
		return true;
	redrive->matching++;
	if (redrive->sends)
		return send_back(redrive, record);
	part->upto = record->offset + 1;
	show_dead_letter(redrive, record);
	return true;
}

static bool read_dead_letters(struct redrive *redrive, bool sends, struct err *err)
{
	const char *topics[] = {redrive->section->dead_letter_topic, NULL};
	OWNED(owned_consumer_destroy)
	struct consumer *consumer =
	    consumer_create(redrive->section->kafka, topics, "read_committed", err);
	bool at_end = false;
	redrive->sends = sends;
	redrive->matching = redrive->gone_before = 0;
	while (consumer && !at_end && !redrive->failed && redrive->matching < redrive->limit)
		if (!consumer_read(consumer, WAIT_MS, see_dead_letter, redrive, &at_end, err))
			return false;
	if (consumer && sends)
		send_until_few(redrive, 0);
	return consumer;
}

/* --- what went back before ------------------------------------------------------------------ */

static bool read_part(struct redrive *redrive, const struct consumer_partition *at, struct err *err)
{
	struct part *part = &redrive->parts[at->partition];
	owned_text char *text = NULL;
	const char *finished, *mark;
	int64_t offset;
	if (!committed_read(redrive->committed, at->topic, at->partition, &offset, &text, err))
		return false;
	bool ours = commit_text_parse(text, &finished, &mark);
	bool stale = offset < at->low || offset > at->high; /* the topic was made anew, or cut */
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
	for (int i = 0; consumer_partition_at(consumer, i, &at); i++)
		if (!read_part(redrive, &at, err))
			return false;
	return true;
}

static bool note_parts(struct redrive *redrive, struct err *err)
{
	char text[COMMIT_TEXT_SIZE];
	for (int i = 0; i < redrive->part_count; i++) {
		const struct offsets *offsets = &redrive->parts[i].offsets;
		if (commit_text_write(offsets, "", text) >= COMMIT_TEXT_SIZE)
			fprintf(stderr,
			    "outbox-relay: partition %d: too many single dead letters went back to "
			    "note each; some will be shown again\n",
			    i);
		const struct subscription_place place = {
		    redrive->section->dead_letter_topic, i, offsets->done, text};
		if (!committed_write(redrive->committed, &place, err))
			return err_prefix(err, "what went back is not noted");
	}
	return true;
}

/* --- the command ---------------------------------------------------------------------------- */

static const struct config_deliver *find_redrive_section(
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

static bool send_all_back(struct redrive *redrive, struct err *err)
{
	owned_text char *question =
	    xformat("Send %" PRId64 " dead letters back?", redrive->matching);
	struct err noting;
	if (!confirm_call(redrive->call, question, err))
		return false;
	redrive->limit = INT64_MAX; /* the passes read partitions by turns, each in its own order */
	bool well = read_dead_letters(redrive, true, err);
	bool noted = note_parts(redrive, well && !redrive->failed ? err : &noting);
	if (redrive->failed)
		*err = redrive->err;
	printf("%" PRId64 " dead letters went back\n", redrive->sent);
	return well && noted && !redrive->failed;
}

static bool show_and_redrive(struct redrive *redrive, struct err *err)
{
	if (!read_parts(redrive, err) || !read_dead_letters(redrive, false, err))
		return false;
	if (redrive->shown > SHOWN)
		printf("… and %" PRId64 " more\n", redrive->shown - SHOWN);
	printf("%" PRId64 " dead letters match; %" PRId64 " more went back before\n",
	    redrive->matching, redrive->gone_before);
	return redrive->matching == 0 || call_flag(redrive->call, "dry-run") ||
	       send_all_back(redrive, err);
}

static bool redrive_all(const struct call *call, struct err *err)
{
	char from[MOMENT_SIZE], to[MOMENT_SIZE];
	struct redrive redrive = {.call = call, .limit = call_number(call, "limit", INT64_MAX)};
	OWNED(owned_config_destroy) struct config *config = session_config(call, err);
	if (!config || !session_range(call, &redrive.from_us, &redrive.to_us, from, to, err))
		return false;
	redrive.section = find_redrive_section(config, call->arguments[0], err);
	if (!redrive.section)
		return false;
	OWNED(owned_rule_key_destroy)
	struct rule_key *id_key = rule_key_parse(redrive.section->id, err);
	if (!id_key)
		return false;
	owned_text char *group = xformat("%s.redriven", redrive.section->group);
	OWNED(owned_committed_close)
	struct committed *committed = committed_open(redrive.section->kafka, group, err);
	OWNED(owned_redelivery_destroy)
	struct redelivery *redelivery =
	    redelivery_create(redrive.section->kafka, redrive.section->group);
	redrive.committed = committed;
	redrive.redelivery = redelivery;
	redrive.id_key = id_key;
	bool done = committed && show_and_redrive(&redrive, err);
	for (int i = 0; i < redrive.part_count; i++)
		offsets_finish(&redrive.parts[i].offsets);
	free(redrive.parts);
	return done;
}

static int run_deliver_redrive(const struct call *call)
{
	struct err err;
	if (!call_flag(call, "dry-run") && !call_flag(call, "yes") && !confirm_can_ask()) {
		err_set(&err, ERR_REJECT,
		    "nobody can be asked: look first with --dry-run, then say --yes");
		return session_failed(&err);
	}
	return redrive_all(call, &err) ? 0 : session_failed(&err);
}

static const struct command_option deliver_redrive_options[] = {
    {"id", "ID",
	"Dead letters of the message that the application knows by this id, or with this "
	"outbox-id."},
    {"key", "KEY", "Dead letters with this key."},
    {"topic", "TOPIC", "Dead letters of messages that were in this topic first."},
    {"reason-has", "TEXT", "Dead letters whose reason contains this text."},
    {"from", "MOMENT", "Dead letters of messages of this moment or later (RFC 3339, UTC)."},
    {"to", "MOMENT", "Dead letters of messages before this moment."},
    {"limit", "N", "At most so many, the oldest of each partition first.", 1, INT64_MAX},
    {"dry-run", NULL, "Shows what would go back, and sends nothing."},
    {"yes", NULL, "Asks nobody."},
    {0},
};

const struct command command_deliver_redrive = {
    .name = "deliver redrive",
    .arguments = "NAME",
    .least_arguments = 1,
    .most_arguments = 1,
    .summary = "Sends dead letters of a section back to be delivered once more.",
    .description =
	"Reads the section's dead_letter_topic and sends the dead letters that match back to the "
	"topics that their messages were in first, for this section's group alone: with their "
	"key, payload, and headers. All that match by default; each dead letter once, since what "
	"went back is noted with Kafka, as the group GROUP.redriven. They come behind all that is "
	"in those topics now: their place in the order of their key is gone.\n"
	"It shows the first 20 and how many there are, and asks.\n",
    .options = deliver_redrive_options,
    .run = run_deliver_redrive,
};
