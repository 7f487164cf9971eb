/*
 * One assigned partition: its state, its folder with dedup store and rules, the place where reading
 * begins, and the way of a message until it is admitted to its key queue. Read from [arrival]: a
 * message arrives, is looked up in the store, is checked by the rules, and is admitted in the order
 * of offsets. [commits] makes the result durable before an offset is committed.
 */
#include "inbox_partition.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>
#include "cleanup.h"
#include "clock.h"
#include "fault.h"
#include "logging.h"
#include "outbox_error.h"
#include "redelivery.h"
#include "state_folder.h"
#include "text.h"

enum {
	BATCH = 1000,
	FOLDERS = 100,
	GROUP_NAME = 128,   /* a longer one is known by its digest */
	LOOK_EVERY = 1000,  /* records of a partition between two looks at the text's length */
	LEAST_LAG_MS = 1000 /* the shortest lag that find_window assumes */
};

/* --- states --------------------------------------------------------------------------------- */

#define MAY(state) (1U << ASSIGNED_##state)

static const struct state_row assigned_rows[ASSIGNED_STATES] = {
    [ASSIGNED_OPENING] = {"opening", MAY(READING) | MAY(UNSET),
	"its stores are being opened, and the offset where it begins is looked for"},
    [ASSIGNED_READING] = {"reading", MAY(SKIPPING) | MAY(MISSING) | MAY(UNSET),
	"its messages are read and handled, and their offsets committed"},
    [ASSIGNED_SKIPPING] = {"skipping", MAY(READING) | MAY(MISSING),
	"its next message was deleted, and reading continues where `start` says"},
    [ASSIGNED_MISSING] = {"missing", 0,
	"its topic was deleted or made anew, and nothing is committed until it is opened again"},
    [ASSIGNED_UNSET] = {"unset", 0,
	"it has no offset, and is blocked until an operator sets one and resumes it"},
};

const struct state_table inbox_partition_states = {
    "assigned partition of the inbox", assigned_rows, ASSIGNED_STATES, ASSIGNED_OPENING};

void inbox_partition_move(struct inbox_partition *assigned, enum inbox_partition_state state)
{
	states_check(&inbox_partition_states, assigned->state, state);
	if (STATES_CHECKED && state != ASSIGNED_UNSET) /* may come before the first offset */
		states_expect(assigned->topic && assigned->read >= 0 &&
			      assigned->committed <= assigned->offsets.done);
	assigned->state = state;
}

bool inbox_partition_commits(const struct inbox_partition *assigned)
{
	return assigned->state == ASSIGNED_READING || assigned->state == ASSIGNED_SKIPPING;
}

/* --- folders -------------------------------------------------------------------------------- */

static bool make_folder(const char *path, struct err *err)
{
	if (mkdir(path, 0700) == 0)
		return true;
	/* An existing folder is used only if no other user can write to it. */
	if (errno == EEXIST) {
		const char *why;
		int fd = state_folder_open_descriptor(path, &why);
		if (why)
			return err_set(err, ERR_CONFIG, "path: %s is refused: %s", path, why);
		if (fd >= 0) {
			close(fd);
			return true;
		}
	}
	return err_set(err,
	    errno == EACCES || errno == EPERM || errno == ENOENT ? ERR_CONFIG : ERR_RETRY,
	    "path: %s cannot be made: %s", path, strerror(errno));
}

/*
 * The folder of the group. Groups do not share a store: each group handles every message, also one
 * that another group has handled.
 */
static char *group_folder(const struct inbox_settings *settings)
{
	const char *group = settings->given.group;
	struct text name = {0};
	text_addf(&name, "%s/", settings->given.path);
	if (strlen(group) > GROUP_NAME)
		text_addf(&name, "%%%016" PRIx64, XXH3_64bits(group, strlen(group)));
	for (const char *at = group; strlen(group) <= GROUP_NAME && *at; at++) {
		bool plain = isalnum((unsigned char)*at) || *at == '_' || *at == '-' ||
			     (*at == '.' && at > group);
		text_addf(&name, plain ? "%c" : "%%%02X", (unsigned char)*at);
	}
	return name.data;
}

/* number 0: the usual folder. Others are used while a process that does not yet know that it has
 * lost the partition has that folder open. */
static char *folder_of(const char *group, const struct inbox_partition *assigned, int number)
{
	char *usual = xformat("%s/%s-%" PRId32, group, assigned->topic, assigned->partition);
	if (number == 0)
		return usual;
	char *other = xformat("%s.%d", usual, number);
	free(usual);
	return other;
}

static bool open_partition_store(const struct inbox_settings *settings,
    struct inbox_partition *assigned, const char *folder, struct err *err)
{
	struct outbox_error error;
	if (!settings->local)
		return true;
	owned_text char *line = xformat("%s path=\"%s/dedup\"", settings->given.dedup, folder);
	assigned->own.dedup = outbox_dedup_open(line, &error);
	return assigned->own.dedup || outbox_error_take(&error, err);
}

bool inbox_partition_open_rules(const struct inbox_settings *settings, const char *path,
    struct inbox_partition_rules *rules, struct err *err)
{
	const struct outbox_inbox_settings *given = &settings->given;
	const struct outbox_rules_settings wanted = {.path = path,
	    .store = given->rules_store,
	    .lines = given->rules,
	    .count = settings->rule_count,
	    .user = given->user,
	    .content = given->content,
	    .channel = given->channel,
	    .zone = given->zone};
	struct outbox_error error;

	rules->open = outbox_rules_open_as(&wanted, &error);
	return rules->open || outbox_error_take(&error, err);
}

static bool open_own_rules(const struct inbox_settings *settings, struct inbox_partition *assigned,
    const char *folder, struct err *err)
{
	owned_text char *path = xformat("%s/rules", folder);
	return !inbox_settings_local_rules(settings) ||
	       inbox_partition_open_rules(settings, path, &assigned->own_rules, err);
}

static void close_state(struct inbox_partition *assigned)
{
	outbox_dedup_close(assigned->own.dedup);
	outbox_rules_close(assigned->own_rules.open);
	assigned->own.dedup = NULL;
	assigned->own_rules.open = NULL;
}

static bool open_in(const struct inbox_settings *settings, struct inbox_partition *assigned,
    int number, struct err *err)
{
	owned_text char *group = group_folder(settings);
	owned_text char *folder = folder_of(group, assigned, number);
	if (make_folder(settings->given.path, err) && make_folder(group, err) &&
	    make_folder(folder, err) && open_partition_store(settings, assigned, folder, err) &&
	    open_own_rules(settings, assigned, folder, err))
		return true;
	close_state(assigned);
	return false;
}

static bool open_folder(
    const struct inbox_settings *settings, struct inbox_partition *assigned, struct err *err)
{
	if (!settings->local && !inbox_settings_local_rules(settings))
		return true;
	for (int number = 0; number < FOLDERS; number++) {
		if (open_in(settings, assigned, number, err))
			return true;
		if (err->kind != ERR_FENCED)
			return false;
	}
	return err_set(err, ERR_RETRY, "%s-%" PRId32 ": all of its %d folders are in use",
	    assigned->topic, assigned->partition, FOLDERS);
}

/* The committed offset and its text. */
struct commit {
	char *text; /* the other texts are parts of it */
	const char *finished, *mark;
	bool ours; /* the inbox wrote the text; otherwise the parts are "" */
	int64_t offset;
	bool there; /* a commit exists, and so does the record at its offset, or the end */
};

static void refuse_text(struct commit *commit)
{
	commit->finished = commit->mark = "";
	commit->ours = false;
}

static bool open_sequence(const struct inbox_settings *settings, struct inbox_partition *assigned,
    struct commit *commit, struct err *err)
{
	struct outbox_error error;
	if (!settings->by_position)
		return true;
	assigned->own.dedup = outbox_dedup_open(settings->given.dedup, &error);
	if (!assigned->own.dedup)
		return outbox_error_take(&error, err);
	if (!commit->mark[0] || outbox_dedup_resume(assigned->own.dedup, commit->mark, &error))
		return true;
	outbox_dedup_close(assigned->own.dedup);
	refuse_text(commit);
	return open_sequence(settings, assigned, commit, err); /* without a mark */
}

void inbox_partition_log_gone(const struct inbox_partition *assigned, int64_t offset)
{
	log_error("inbox_offset_gone", {"topic", LOG_TEXT(assigned->topic)},
	    {"partition", LOG_INT(assigned->partition)}, {"offset", LOG_INT(offset)},
	    {"consequence", LOG_TEXT("the topic was cut, or made anew, or keeps records for too "
				     "short a time: it goes on as `start` says")});
}

/* --- where it begins ------------------------------------------------------------------------ */

/* The offset up to which the state knows the finished messages. INT64_MAX: it needs none, -1: it
 * knows nothing. */
static int64_t offset_of_state(
    const struct inbox_settings *settings, const struct inbox_partition *assigned)
{
	struct outbox_dedup_stats dedup;
	struct outbox_rules_stats rules;
	int64_t offset = INT64_MAX;

	if (settings->local) {
		outbox_dedup_stats(assigned->own.dedup, &dedup);
		offset = dedup.offset;
	}
	if (assigned->own_rules.open) {
		outbox_rules_stats(assigned->own_rules.open, &rules);
		offset = rules.offset < offset ? rules.offset : offset;
	}
	return offset;
}

struct range {
	int64_t low, high;
};

/*
 * Finds the first offset that the window holds. The end of the window is the largest time before
 * the committed offset, and not the clock, because a consumer may lag. The lag is found by
 * doubling, so that too much is read rather than too little.
 */
static bool find_window(const struct inbox_settings *settings, struct subscription *subscription,
    const struct subscription_place *place, int64_t *ret_offset, struct err *err)
{
	int64_t time_ms = clock_wall_us() / 1000, lag_ms = LEAST_LAG_MS, at = INT64_MAX;
	for (; at >= place->offset && time_ms > 0; lag_ms *= 2) {
		time_ms -= lag_ms;
		if (!subscription_at(
			subscription, place->topic, place->partition, time_ms, &at, err))
			return false;
	}
	return subscription_at(subscription, place->topic, place->partition,
	    time_ms - settings->spec.window_ms, ret_offset, err);
}

/*
 * Moves the committed offset of the place back if the state does not reach so far, because another
 * consumer had the partition or the state is lost. Records older than the window are not read.
 */
static bool go_back(const struct inbox_settings *settings, struct subscription *subscription,
    int64_t known, int64_t low, struct subscription_place *place, struct err *err)
{
	int64_t from = known, window_at = -1;

	/* The state reaches the offset; or it is empty and, without a local store, stays so. */
	if (known >= place->offset || (known < 0 && !settings->local))
		return true;
	/* A store that forgets nothing needs the ids of all records, not only of a window. */
	if (settings->local && dedup_spec_forgets(&settings->spec) &&
	    !find_window(settings, subscription, place, &window_at, err))
		return false;

	/* Ids older than the window need not be known, and deleted records cannot be read. */
	from = window_at > from ? window_at : from;
	from = low > from ? low : from;
	if (from >= place->offset)
		return true;

	log_info("inbox_rebuild", {"topic", LOG_TEXT(place->topic)},
	    {"partition", LOG_INT(place->partition)}, {"from", LOG_INT(from)},
	    {"to", LOG_INT(place->offset)});
	place->offset = from;
	return true;
}

void inbox_partition_stop_unset(struct inbox_partition *assigned)
{
	inbox_partition_move(assigned, ASSIGNED_UNSET);
	log_error("inbox_blocked", {"topic", LOG_TEXT(assigned->topic)},
	    {"partition", LOG_INT(assigned->partition)}, {"reason", LOG_TEXT("it has no offset")},
	    {"consequence", LOG_TEXT("nothing of the partition is read, until somebody sets the "
				     "group's offset in it and it is resumed, or its consumer "
				     "begins anew")});
}

/*
 * Begins where the settings say: the group has committed no offset, or one that does not exist. An
 * offset before the first record is a gap, and the text of the commit still holds behind the gap.
 * An offset behind the last record belongs to another log.
 */
static void begin_as_set(const struct inbox_settings *settings, struct inbox_partition *assigned,
    const struct range *range, struct subscription_place *place, struct commit *commit)
{
	bool earliest = settings->given.start == OUTBOX_INBOX_EARLIEST;
	commit->there = false;
	if (place->offset >= 0)
		inbox_partition_log_gone(assigned, place->offset);
	if (settings->given.start == OUTBOX_INBOX_BLOCK)
		inbox_partition_stop_unset(assigned);
	place->offset = earliest ? range->low : range->high;
	if (commit->offset > range->high)
		commit->finished = "";
	if (commit->offset < 0 || commit->offset > range->high)
		commit->offset = place->offset;
}

/* The commit was made for another log than this one. */
static void tell_ahead(const struct inbox_partition *assigned, int64_t known, int64_t high)
{
	log_warn("inbox_state_ahead", {"topic", LOG_TEXT(assigned->topic)},
	    {"partition", LOG_INT(assigned->partition)}, {"offset", LOG_INT(known)},
	    {"end", LOG_INT(high)},
	    {"consequence",
		LOG_TEXT("the topic was made anew, or cut: its ids are kept, and what is "
			 "committed is read once more for those of now")});
}

/* Sets the place's offset to the one where reading begins. */
static bool find_beginning(const struct inbox_settings *settings, struct inbox_partition *assigned,
    struct subscription *subscription, struct subscription_place *place, struct commit *commit,
    struct err *err)
{
	struct range range;
	int64_t known = offset_of_state(settings, assigned);

	if (place->offset >= 0 && known == INT64_MAX)
		return true; /* if the record does not exist, librdkafka says so */
	if (!subscription_range(
		subscription, assigned->topic, assigned->partition, &range.low, &range.high, err))
		return false;
	if (place->offset < range.low || place->offset > range.high) {
		begin_as_set(settings, assigned, &range, place, commit);
		return true;
	}
	if (known != INT64_MAX && known > range.high) {
		tell_ahead(assigned, known, range.high);
		known = -1;
	}
	return go_back(settings, subscription, known, range.low, place, err);
}

static void tell_foreign(
    const struct inbox_partition *assigned, const struct subscription_place *place)
{
	log_warn("inbox_foreign_text", {"topic", LOG_TEXT(assigned->topic)},
	    {"partition", LOG_INT(assigned->partition)}, {"offset", LOG_INT(place->offset)},
	    {"consequence",
		LOG_TEXT("the offset is used, but not the text stored with it: another program "
			 "commits for this group, or did; messages beyond the offset are handled "
			 "again")});
}

static void set_offsets(struct inbox_partition *assigned, const struct subscription_place *place,
    const struct commit *commit)
{
	bool ours = offsets_init(&assigned->offsets, commit->offset, commit->finished);
	if (!ours || !commit->ours)
		tell_foreign(assigned, place);
	assigned->read = place->offset;
	assigned->behind = place->offset < commit->offset;
	offsets_skip(&assigned->offsets, place->offset);
	assigned->committed = assigned->offsets.done;
	assigned->changed = !commit->there; /* otherwise another start would move it once more */
	assigned->mark_length = strlen(commit->mark);
	commit_text_write(&assigned->offsets, commit->mark, assigned->text);
}

static bool begin_partition(const struct inbox_settings *settings, struct inbox_partition *assigned,
    struct subscription *subscription, struct subscription_place *place, struct err *err)
{
	owned_text char *text = xstrdup(place->text);
	struct commit commit = {.text = text, .offset = place->offset, .there = true};
	commit.ours = commit_text_parse(text, &commit.finished, &commit.mark);
	if (!open_folder(settings, assigned, err) ||
	    !open_sequence(settings, assigned, &commit, err) ||
	    !find_beginning(settings, assigned, subscription, place, &commit, err))
		return false;
	set_offsets(assigned, place, &commit);
	if (assigned->state == ASSIGNED_OPENING)
		inbox_partition_move(assigned, ASSIGNED_READING);
	return true;
}

static bool is_subscribed(const struct inbox_settings *settings, struct inbox_partition *assigned,
    const char *topic, struct err *err)
{
	assigned->topic_number = inbox_settings_topic(settings, topic);
	if (assigned->topic_number < 0)
		return err_set(err, ERR_RETRY, "the group has given it, and nobody asked for it");
	assigned->topic = settings->topics[assigned->topic_number];
	assigned->retry = inbox_settings_retry_of(settings, topic);
	assigned->salt = XXH3_64bits_withSeed(topic, strlen(topic), (uint64_t)assigned->partition);
	return true;
}

struct inbox_partition *inbox_partition_open(const struct inbox_settings *settings,
    struct inbox_partition_common common, struct subscription *subscription,
    struct subscription_place *place, struct err *err)
{
	struct inbox_partition *assigned = xcalloc(1, sizeof *assigned);
	assigned->partition = place->partition;
	assigned->store = common.store ? common.store : &assigned->own;
	assigned->rules = common.rules ? common.rules : &assigned->own_rules;
	assigned->store->partitions++;
	if (is_subscribed(settings, assigned, place->topic, err) &&
	    begin_partition(settings, assigned, subscription, place, err))
		return assigned;
	err_prefix(err, "%s-%" PRId32, place->topic, assigned->partition);
	inbox_partition_close(assigned);
	return NULL;
}

static void destroy_items(struct item_list *list)
{
	for (struct item *item; (item = item_list_take(list));)
		item_destroy(item);
}

void inbox_partition_close(struct inbox_partition *assigned)
{
	destroy_items(&assigned->arrived);
	destroy_items(&assigned->logging);
	close_state(assigned);
	assigned->store->partitions--;
	offsets_finish(&assigned->offsets);
	text_finish(&assigned->handled);
	free(assigned);
}

/* --- ids ------------------------------------------------------------------------------------ */

static void set_id(struct item *item, const void *id, size_t length)
{
	item->public.id = length ? id : NULL;
	item->public.id_length = item->public.id ? length : 0;
}

static struct outbox_rules_message message_of(const struct item *item)
{
	const struct outbox_inbox_message *message = &item->public;
	return (struct outbox_rules_message){.topic = message->topic,
	    .partition = message->partition,
	    .offset = message->offset,
	    .time_ms = message->time_ms,
	    .key = message->key,
	    .key_length = message->key_length,
	    .payload = message->payload,
	    .payload_length = message->payload_length,
	    .headers = message->headers,
	    .header_count = message->header_count};
}

static void find_expression(const struct inbox_settings *settings, struct item *item)
{
	struct outbox_rules_message message = message_of(item);
	struct rule_message asked = {.message = &message};
	struct text text = {0};
	if (rule_key_add_id(settings->id_key, &asked, &text)) {
		item->owned_id = text.data;
		set_id(item, text.data, text.length);
	} else
		free(text.data);
	rule_message_finish(&asked);
}

/* A long id is replaced by its digest. */
static void set_store_id(struct item *item, const void *id, size_t length)
{
	char digest[ITEM_DIGEST];
	size_t short_length;
	item->id = item_short_id(id, length, digest, &short_length);
	item->id_length = (uint32_t)short_length;
	if (item->id != digest)
		return;
	free(item->owned_leg);
	item->id = item->owned_leg = xstrdup(digest);
}

static void add_leg(struct item *item)
{
	const struct outbox_rules_header *leg =
	    item->redelivered ? item_header(item, "outbox-leg") : NULL;
	struct text text = {0};
	if (!leg || !item->public.id) {
		set_store_id(item, item->public.id, item->public.id_length);
		return;
	}
	text_append(&text, item->public.id, item->public.id_length);
	text_append(&text, leg->value, leg->length);
	item->owned_leg = text.data;
	set_store_id(item, text.data, text.length);
}

/* A message without a known position is not from a relay, or is a replay: it counts as new. */
static void take_position(struct inbox_partition *assigned, struct item *item)
{
	const struct outbox_rules_header *header = item_header(item, "outbox-position");
	struct outbox_position position;
	if (header &&
	    position_prefix_parse(&assigned->positions, header->value, header->length, &position))
		set_store_id(item, header->value, header->length);
}

static void identify_item(
    struct inbox_partition *assigned, const struct inbox_settings *settings, struct item *item)
{
	const struct outbox_inbox_message *message = &item->public;
	const struct outbox_rules_header *header;

	switch (settings->id_place) {
	case ID_HEADER:
		header = item_header(item, settings->id_header);
		set_id(item, header ? header->value : NULL, header ? header->length : 0);
		break;
	case ID_KEY:
		set_id(item, message->key, message->key_length);
		break;
	case ID_PAYLOAD:
		set_id(item, message->payload, message->payload_length);
		break;
	case ID_EXPRESSION:
		find_expression(settings, item);
	}
	if (settings->by_position)
		take_position(assigned, item);
	else
		add_leg(item);
}

static void set_fate(struct item *item, enum item_fate fate, const char *format, const char *detail)
{
	item->fate = fate;
	free(item->reason);
	item->reason = xformat(format, detail);
}

/* Handles a message without an id where the settings need one. */
static void miss_id(
    struct inbox_partition *assigned, const struct inbox_settings *settings, struct item *item)
{
	static const char *const consequences[] = {"it is a dead letter",
	    "it is handled, and its copies are not recognised", "its partition is blocked"};
	enum outbox_inbox_policy policy = settings->given.without_id;

	if (!settings->told[assigned->topic_number])
		log_warn("inbox_without_id", {"topic", LOG_TEXT(assigned->topic)},
		    {"partition", LOG_INT(assigned->partition)},
		    {"offset", LOG_INT(item->public.offset)}, {"id", LOG_TEXT(settings->given.id)},
		    {"consequence", LOG_TEXT(consequences[policy])});
	settings->told[assigned->topic_number] = true;
	/* PROCESS: the message has no id, so the store is not queried. */
	if (policy != OUTBOX_INBOX_PROCESS)
		set_fate(item, policy == OUTBOX_INBOX_FAIL ? FATE_BLOCK : FATE_DEAD,
		    "there is no id in it: %s finds nothing", settings->given.id);
}

/* --- arrival -------------------------------------------------------------------------------- */

static uint64_t key_hash_of(const struct inbox_partition *assigned, const struct item *item)
{
	const struct outbox_inbox_message *message = &item->public;
	if (!message->key) /* a message without a key is alone in its queue */
		return XXH3_64bits_withSeed(
		    &message->offset, sizeof message->offset, ~assigned->salt);
	return XXH3_64bits_withSeed(message->key, message->key_length, assigned->salt);
}

static int header_number(const struct outbox_rules_header *header)
{
	char text[16];
	int64_t number = 0;
	if (!header || header->length >= sizeof text)
		return 0;
	memcpy(text, header->value, header->length);
	text[header->length] = '\0';
	return text_to_int64(text, 0, INT32_MAX, &number) ? (int)number : 0;
}

static bool is_for_others(const struct inbox_settings *settings, const struct item *item)
{
	const struct outbox_rules_header *group =
	    item->redelivered ? item_header(item, "outbox-group") : NULL;
	return group && (group->length != strlen(settings->given.group) ||
			    memcmp(group->value, settings->given.group, group->length) != 0);
}

bool inbox_partition_arrive(
    struct inbox_partition *assigned, const struct inbox_settings *settings, struct item *item)
{
	int64_t offset = item->public.offset;

	/* A record below the position was read before; an unset partition takes none. */
	if (offset < assigned->read || assigned->state == ASSIGNED_UNSET) {
		item_destroy(item);
		return false;
	}
	assigned->read = offset + 1;
	item->assigned = assigned;
	item->public.topic = assigned->topic;
	/* Only the library writes these headers, and only to retry topics: elsewhere they are
	 * forged. */
	if (assigned->retry < 0)
		item_drop_claims(item);
	item->key_hash = key_hash_of(assigned, item);
	if (item->redelivered)
		item->public.attempt += header_number(item_header(item, "outbox-attempts"));
	identify_item(assigned, settings, item);
	if (is_for_others(settings, item))
		item->fate = FATE_DROP;
	assigned->items++;
	assigned->bytes += (int64_t)item->bytes;
	item_list_add(&assigned->arrived, item);
	return true;
}

/* --- the store ------------------------------------------------------------------------------ */

struct outbox_dedup_id inbox_partition_id(const struct item *item)
{
	return (struct outbox_dedup_id){
	    item->id, item->id_length, item->public.time_ms, item->public.offset};
}

static bool is_asked(const struct inbox_partition *assigned, const struct item *item)
{
	return assigned->store->dedup && !item->checked && item->id && item->fate == FATE_HANDLE &&
	       (!item->known || assigned->own.dedup);
}

void inbox_partition_apply_state(struct item *item, enum outbox_dedup_state state)
{
	struct inbox_partition *assigned = item->assigned;
	item->checked = true;
	item->fate = state == OUTBOX_DEDUP_NEW       ? FATE_HANDLE
		     : state == OUTBOX_DEDUP_PENDING ? FATE_ASK
						     : FATE_COPY;
	item->pending = state == OUTBOX_DEDUP_NEW;
	assigned->store->pending += item->pending;
	assigned->pending += item->pending;
}

void inbox_partition_forget_state(struct item *item)
{
	struct inbox_partition *assigned = item->assigned;
	assigned->store->pending -= item->pending;
	assigned->pending -= item->pending;
	item->pending = false;
	item->fate = FATE_ASK;
}

bool inbox_partition_ask_again(struct inbox_partition *assigned, struct item *item, struct err *err)
{
	const struct outbox_dedup_id id = inbox_partition_id(item);
	enum outbox_dedup_state state;
	struct outbox_error error;
	if (!outbox_dedup_check(assigned->store->dedup, &id, 1, &state, &error))
		return outbox_error_take(&error, err);
	inbox_partition_apply_state(item, state);
	return true;
}

/* An id of a batch is refused: only the message with that id becomes a dead letter. */
static bool check_one_by_one(
    struct inbox_partition *assigned, struct item *const *asked, size_t count, struct err *err)
{
	for (size_t i = 0; i < count; i++) {
		struct err why;
		if (inbox_partition_ask_again(assigned, asked[i], &why))
			continue;
		if (why.kind != ERR_REJECT) {
			*err = why;
			return false;
		}
		set_fate(asked[i], FATE_DEAD, "its id is refused: %s", why.message);
	}
	return true;
}

/* The first `count` that have arrived. */
static bool check_arrived(struct inbox_partition *assigned, size_t count, struct err *err)
{
	struct outbox_dedup_id ids[BATCH];
	struct item *asked[BATCH], *item = assigned->arrived.first;
	enum outbox_dedup_state states[BATCH];
	struct outbox_error error;
	size_t asking = 0;

	for (size_t i = 0; i < count; i++, item = item->link)
		if (is_asked(assigned, item)) {
			ids[asking] = inbox_partition_id(item);
			asked[asking++] = item;
		}
	if (asking && !outbox_dedup_check(assigned->store->dedup, ids, asking, states, &error)) {
		/* one id is invalid: the others must not wait for it */
		if (error.kind == OUTBOX_REJECT)
			return check_one_by_one(assigned, asked, asking, err);
		return outbox_error_take(&error, err);
	}
	for (size_t i = 0; i < asking; i++)
		inbox_partition_apply_state(asked[i], states[i]);
	return true;
}

bool inbox_partition_log(
    struct inbox_partition *assigned, struct item_list *ret_items, struct err *err)
{
	struct outbox_dedup_id ids[BATCH];
	struct outbox_error error;
	size_t count = 0;

	for (struct item *item = assigned->logging.first; item && count < BATCH; item = item->link)
		ids[count++] = inbox_partition_id(item);
	if (count == 0)
		return true;
	if (!outbox_dedup_done(assigned->store->dedup, ids, count, &error)) {
		if (error.kind != OUTBOX_FENCED)
			return outbox_error_take(&error, err);
		log_warn("inbox_handled_twice", {"topic", LOG_TEXT(assigned->topic)},
		    {"partition", LOG_INT(assigned->partition)}, {"error", LOG_TEXT(error.message)},
		    {"consequence", LOG_TEXT("another consumer has completed these messages as "
					     "well, so their effects may exist twice")});
	}
	for (size_t i = 0; i < count; i++) {
		struct item *item = item_list_take(&assigned->logging);
		item->pending = false;
		item_list_add(ret_items, item);
	}
	assigned->store->pending -= (int64_t)count;
	assigned->pending -= (int64_t)count;
	assigned->unflushed = true;
	return true;
}

/* --- the rules ------------------------------------------------------------------------------ */

/* A message of a retry topic was admitted before: to judge it again would count it twice. */
bool inbox_partition_must_judge(const struct inbox_partition *assigned, const struct item *item)
{
	return assigned->rules->open && item->fate == FATE_HANDLE && !item->judged &&
	       !(assigned->retry >= 0 && item->redelivered);
}

static void apply_verdict(struct item *item, const struct outbox_rules_verdict *verdict)
{
	item->judged = true;
	if (verdict->action == OUTBOX_RULES_DROP)
		set_fate(item, FATE_DROP, "rule %s", verdict->name);
	else if (verdict->action == OUTBOX_RULES_DEAD_LETTER)
		set_fate(item, FATE_DEAD, "rule %s", verdict->name);
}

static bool judge_arrived(struct inbox_partition *assigned, size_t count, struct err *err)
{
	struct outbox_rules_message messages[BATCH];
	struct outbox_rules_verdict verdicts[BATCH];
	struct item *judged[BATCH], *item = assigned->arrived.first;
	struct outbox_error error;
	size_t judging = 0;

	for (size_t i = 0; i < count; i++, item = item->link)
		if (inbox_partition_must_judge(assigned, item)) {
			messages[judging] = message_of(item);
			judged[judging++] = item;
		}
	if (judging &&
	    !outbox_rules_check(assigned->rules->open, messages, judging, verdicts, &error))
		return outbox_error_take(&error, err);

	for (size_t i = 0; i < judging; i++)
		apply_verdict(judged[i], &verdicts[i]);
	return true;
}

bool inbox_partition_judge(struct inbox_partition *assigned, struct item *item, struct err *err)
{
	const struct outbox_rules_message message = message_of(item);
	struct outbox_rules_verdict verdict;
	struct outbox_error error;

	if (!outbox_rules_check(assigned->rules->open, &message, 1, &verdict, &error))
		return outbox_error_take(&error, err);
	apply_verdict(item, &verdict);
	return true;
}

/* --- admission ------------------------------------------------------------------------------ */

/* True also for records that were finished beyond the committed offset. */
static bool offset_is_known(struct inbox_partition *assigned, int64_t offset)
{
	if (offset < assigned->offsets.done)
		return true;
	assigned->behind = false;
	bool known = !offsets_take(&assigned->offsets, offset);
	assigned->changed |= known;
	return known;
}

static void look_at_text(struct inbox_partition *assigned)
{
	char text[COMMIT_TEXT_SIZE];
	if (++assigned->taken < LOOK_EVERY)
		return;
	assigned->taken = 0;
	size_t needed = commit_text_write(&assigned->offsets, "", text);
	if (commit_text_is_full(false, needed + assigned->mark_length, assigned->mark_length))
		assigned->stops |= STOP_TEXT;
}

static void meet_item(
    struct inbox_partition *assigned, const struct inbox_settings *settings, struct item *item)
{
	item->met = true;
	item->known = offset_is_known(assigned, item->public.offset);
	assigned->known += item->known;
	if (!item->known)
		look_at_text(assigned);
	if (item->fate == FATE_HANDLE && !item->public.id && !item->known &&
	    !settings->by_position && (settings->given.dedup || settings->given.take))
		miss_id(assigned, settings, item);
}

/*
 * Takes the first messages that have arrived, up to the given number. Stops at the first that is
 * too far behind an unfinished one. Returns their number.
 */
static size_t meet_first(
    struct inbox_partition *assigned, const struct inbox_settings *settings, size_t most)
{
	size_t count = 0;
	struct item *item = assigned->arrived.first;
	for (; item && count < most; item = item->link, count++) {
		if (!item->met && !offsets_reaches(&assigned->offsets, item->public.offset))
			break;
		if (!item->met)
			meet_item(assigned, settings, item);
	}
	return count;
}

/*
 * How many more ids may be pending. In a store of several partitions each partition leaves as much
 * room as it uses, so that a stuck partition does not block the others.
 */
static size_t pending_room(
    const struct inbox_partition *assigned, const struct inbox_settings *settings)
{
	int64_t left = settings->spec.pending - assigned->store->pending;
	if (!assigned->store->dedup)
		return BATCH;
	if (assigned->store->partitions > 1)
		left = (left - assigned->pending + 1) / 2;
	return left < 0 ? 0 : left < BATCH ? (size_t)left : BATCH;
}

bool inbox_partition_admit(struct inbox_partition *assigned, const struct inbox_settings *settings,
    struct item_list *ret_items, int64_t **ret_trouble, struct err *err)
{
	for (size_t count;
	     (count = meet_first(assigned, settings, pending_room(assigned, settings))) > 0;) {
		*ret_trouble = &assigned->store->trouble_until;
		if (!check_arrived(assigned, count, err))
			return false;
		*ret_trouble = &assigned->rules->trouble_until;
		if (assigned->rules->open && !judge_arrived(assigned, count, err))
			return false;
		while (count-- > 0)
			item_list_add(ret_items, item_list_take(&assigned->arrived));
	}
	return true;
}

bool inbox_partition_flush(struct inbox_partition *assigned, struct err *err)
{
	struct outbox_error error;
	if (!assigned->unflushed)
		return true;
	if (!outbox_dedup_flush(assigned->store->dedup, &error))
		return outbox_error_take(&error, err);
	assigned->unflushed = false;
	return true;
}

/* --- commits -------------------------------------------------------------------------------- */

/*
 * The offset up to which the state knows all finished messages. -1: older records are still read.
 */
static int64_t known_to(const struct inbox_partition *assigned)
{
	return assigned->behind || assigned->known ? -1 : assigned->offsets.done;
}

/*
 * The rules come first: a message that they recorded passes them again if it is not finished. The
 * marks of `sequence` are those of the committed offset.
 */
static bool make_partition_durable(
    struct inbox_partition *assigned, const struct inbox_settings *settings, struct err *err)
{
	struct outbox_error error;
	int64_t done = assigned->offsets.done,
		offset = settings->by_position ? done : known_to(assigned);
	if (assigned->own_rules.open &&
	    !outbox_rules_checkpoint(assigned->own_rules.open, known_to(assigned), &error))
		return outbox_error_take(&error, err);
	if (assigned->store->dedup &&
	    !outbox_dedup_checkpoint(assigned->store->dedup, offset, &error))
		return outbox_error_take(&error, err);
	return true;
}

bool inbox_partition_checkpoint(
    struct inbox_partition *assigned, const struct inbox_settings *settings, struct err *err)
{
	char mark[COMMIT_TEXT_MARK + 1] = "";

	fault_point("inbox_handled");
	/* No offset may be committed ahead of a durable id. */
	if (!make_partition_durable(assigned, settings, err))
		return false;

	fault_point("inbox_durable");
	size_t length =
	    settings->by_position ? outbox_dedup_mark(assigned->own.dedup, mark, sizeof mark) : 0;
	/* Without its mark a commit would promise more than a new owner could know. */
	if (length >= sizeof mark) {
		assigned->stops |= STOP_BLOCKED;
		return err_set(err, ERR_RETRY,
		    "the positions of sequence take %zu bytes, and a commit has room for %d: read "
		    "topics of fewer publishers and shards",
		    length, COMMIT_TEXT_MARK);
	}
	length = commit_text_write(&assigned->offsets, mark, assigned->next_text);
	assigned->next = assigned->offsets.done;
	assigned->prepared = true;
	assigned->mark_length = strlen(mark);
	assigned->taken = 0;
	if (commit_text_is_full(assigned->stops & STOP_TEXT, length, assigned->mark_length))
		assigned->stops |= STOP_TEXT;
	else
		assigned->stops &= ~(unsigned)STOP_TEXT;
	return true;
}

struct subscription_place inbox_partition_take_commit(struct inbox_partition *assigned)
{
	assigned->prepared = false;
	assigned->committed = assigned->next;
	text_copy(assigned->text, sizeof assigned->text, assigned->next_text);
	return (struct subscription_place){
	    assigned->topic, assigned->partition, assigned->committed, assigned->text};
}
