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
#include "dedup_disk.h"
#include "fault.h"
#include "redelivery.h"
#include "logging.h"
#include "outbox_error.h"
#include "position.h"
#include "text.h"

enum {
	BATCH = 1000,
	FOLDERS = 100,
	GROUP_NAME = 128,   /* a longer one is known by its digest */
	LOOK_EVERY = 1000,  /* records of a partition between two looks at the text's length */
	LEAST_LAG_MS = 1000 /* of a partition, as far as it is to be known */
};

/* --- folders -------------------------------------------------------------------------------- */

static bool make_folder(const char *path, struct err *err)
{
	if (mkdir(path, 0700) == 0)
		return true;
	if (errno == EEXIST) {
		const char *why;
		int fd = dedup_disk_open_folder(path, &why);
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

/* The group's name, as one of a folder: what others have done is no copy of what this one is to do.
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

/* number 0: the usual one; others while a process that does not know yet that it has lost the
 * partition has that open. */
static char *folder_of(const char *group, const struct share *share, int number)
{
	char *usual = xformat("%s/%s-%" PRId32, group, share->topic, share->partition);
	if (number == 0)
		return usual;
	char *other = xformat("%s.%d", usual, number);
	free(usual);
	return other;
}

static bool open_store(
    const struct inbox_settings *settings, struct share *share, const char *folder, struct err *err)
{
	struct outbox_error error;
	if (!settings->local)
		return true;
	owned_text char *line = xformat("%s path=\"%s/dedup\"", settings->given.dedup, folder);
	share->own.dedup = outbox_dedup_open(line, &error);
	return share->own.dedup || outbox_error_take(&error, err);
}

static bool open_rules(
    const struct inbox_settings *settings, struct share *share, const char *folder, struct err *err)
{
	struct outbox_error error;
	if (settings->rule_count == 0)
		return true;
	owned_text char *path = xformat("%s/rules", folder);
	share->rules = outbox_rules_open(path, settings->given.rules, settings->rule_count, &error);
	return share->rules || outbox_error_take(&error, err);
}

static void close_state(struct share *share)
{
	outbox_dedup_close(share->own.dedup);
	outbox_rules_close(share->rules);
	share->own.dedup = NULL;
	share->rules = NULL;
}

static bool open_in(
    const struct inbox_settings *settings, struct share *share, int number, struct err *err)
{
	owned_text char *group = group_folder(settings);
	owned_text char *folder = folder_of(group, share, number);
	if (make_folder(settings->given.path, err) && make_folder(group, err) &&
	    make_folder(folder, err) && open_store(settings, share, folder, err) &&
	    open_rules(settings, share, folder, err))
		return true;
	close_state(share);
	return false;
}

static bool open_folder(const struct inbox_settings *settings, struct share *share, struct err *err)
{
	if (!settings->local && settings->rule_count == 0)
		return true;
	for (int number = 0; number < FOLDERS; number++) {
		if (open_in(settings, share, number, err))
			return true;
		if (err->kind != ERR_FENCED)
			return false;
	}
	return err_set(err, ERR_RETRY, "%s-%" PRId32 ": all of its %d folders are in use",
	    share->topic, share->partition, FOLDERS);
}

/* What is committed. */
struct commit {
	char *text; /* that the others are parts of */
	const char *finished, *mark;
	bool ours; /* else they are "" */
	int64_t offset;
	bool there; /* and so is the record at the offset, or the end */
};

static void refuse_text(struct commit *commit)
{
	commit->finished = commit->mark = "";
	commit->ours = false;
}

static bool open_sequence(const struct inbox_settings *settings, struct share *share,
    struct commit *commit, struct err *err)
{
	struct outbox_error error;
	if (!settings->by_position)
		return true;
	share->own.dedup = outbox_dedup_open(settings->given.dedup, &error);
	if (!share->own.dedup)
		return outbox_error_take(&error, err);
	if (!commit->mark[0] || outbox_dedup_resume(share->own.dedup, commit->mark, &error))
		return true;
	outbox_dedup_close(share->own.dedup);
	refuse_text(commit);
	return open_sequence(settings, share, commit, err); /* without a mark */
}

void share_tell_gone(const struct share *share, int64_t offset)
{
	log_error("inbox_offset_gone", {"topic", LOG_TEXT(share->topic)},
	    {"partition", LOG_INT(share->partition)}, {"offset", LOG_INT(offset)},
	    {"consequence", LOG_TEXT("the topic was cut, or made anew, or keeps records for too "
				     "short a time: it goes on as `start` says")});
}

/* --- where it begins ------------------------------------------------------------------------ */

/* Up to which offset the state knows what is done: INT64_MAX: it needs none, -1: it knows nothing.
 */
static int64_t offset_of_state(const struct inbox_settings *settings, const struct share *share)
{
	struct outbox_dedup_stats dedup;
	struct outbox_rules_stats rules;
	int64_t offset = INT64_MAX;
	if (settings->local) {
		outbox_dedup_stats(share->own.dedup, &dedup);
		offset = dedup.offset;
	}
	if (share->rules) {
		outbox_rules_stats(share->rules, &rules);
		offset = rules.offset < offset ? rules.offset : offset;
	}
	return offset;
}

struct range {
	int64_t low, high;
};

/*
 * Where what the window holds begins. Its time is that of the stream, the largest of what is before
 * the committed offset, and not the clock's, from which a consumer that lags is far. It is found
 * by doubling, so that rather too much is read.
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
 * The place's offset, which is committed, becomes one before, if the state does not reach so far:
 * the partition was with somebody else, or the state is lost. What is older than the window is not
 * needed.
 */
static bool go_back(const struct inbox_settings *settings, struct subscription *subscription,
    int64_t known, int64_t low, struct subscription_place *place, struct err *err)
{
	int64_t from = known, window_at = -1;
	if (known >= place->offset || (known < 0 && !settings->local))
		return true;
	if (settings->local && settings->spec.kind != DEDUP_BITMAP &&
	    !find_window(settings, subscription, place, &window_at, err))
		return false;
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

void share_stand_unset(struct share *share)
{
	share->stops |= STOP_UNSET;
	share->missing = true;
	log_error("inbox_stands_still", {"topic", LOG_TEXT(share->topic)},
	    {"partition", LOG_INT(share->partition)}, {"reason", LOG_TEXT("it has no offset")},
	    {"consequence", LOG_TEXT("nothing of the partition is read, until somebody sets the "
				     "group's offset in it and it is resumed, or its consumer "
				     "begins anew")});
}

/*
 * Of a group that has committed nothing, or something that is not there. What was deleted from the
 * partition's front is a gap, with the rest of the text beyond it; beyond the end it is another
 * log.
 */
static void begin_as_set(const struct inbox_settings *settings, struct share *share,
    const struct range *range, struct subscription_place *place, struct commit *commit)
{
	bool earliest = settings->given.start == OUTBOX_INBOX_EARLIEST;
	commit->there = false;
	if (place->offset >= 0)
		share_tell_gone(share, place->offset);
	if (settings->given.start == OUTBOX_INBOX_STAND_STILL)
		share_stand_unset(share);
	place->offset = earliest ? range->low : range->high;
	if (commit->offset > range->high)
		commit->finished = "";
	if (commit->offset < 0 || commit->offset > range->high)
		commit->offset = place->offset;
}

/* It was made for another log than this one. */
static void tell_ahead(const struct share *share, int64_t known, int64_t high)
{
	log_warn("inbox_state_ahead", {"topic", LOG_TEXT(share->topic)},
	    {"partition", LOG_INT(share->partition)}, {"offset", LOG_INT(known)},
	    {"end", LOG_INT(high)},
	    {"consequence",
		LOG_TEXT("the topic was made anew, or cut: its ids are kept, and what is "
			 "committed is read once more for those of now")});
}

/* The place's offset becomes that where reading begins. */
static bool find_beginning(const struct inbox_settings *settings, struct share *share,
    struct subscription *subscription, struct subscription_place *place, struct commit *commit,
    struct err *err)
{
	struct range range;
	int64_t known = offset_of_state(settings, share);
	if (place->offset >= 0 && known == INT64_MAX)
		return true; /* if it is not there, librdkafka says so */
	if (!subscription_range(
		subscription, share->topic, share->partition, &range.low, &range.high, err))
		return false;
	if (place->offset < range.low || place->offset > range.high) {
		begin_as_set(settings, share, &range, place, commit);
		return true;
	}
	if (known != INT64_MAX && known > range.high) {
		tell_ahead(share, known, range.high);
		known = -1;
	}
	return go_back(settings, subscription, known, range.low, place, err);
}

static void tell_foreign(const struct share *share, const struct subscription_place *place)
{
	log_warn("inbox_foreign_text", {"topic", LOG_TEXT(share->topic)},
	    {"partition", LOG_INT(share->partition)}, {"offset", LOG_INT(place->offset)},
	    {"consequence",
		LOG_TEXT("the offset is taken, the text beside it is not: somebody else commits "
			 "for this group, or did; messages beyond the offset are handled again")});
}

static void set_offsets(
    struct share *share, const struct subscription_place *place, const struct commit *commit)
{
	bool ours = offsets_init(&share->offsets, commit->offset, commit->finished);
	if (!ours || !commit->ours)
		tell_foreign(share, place);
	share->read = place->offset;
	share->behind = place->offset < commit->offset;
	offsets_skip(&share->offsets, place->offset);
	share->committed = share->offsets.done;
	share->changed = !commit->there; /* else another start would move it once more */
	share->mark_length = strlen(commit->mark);
	commit_text_write(&share->offsets, commit->mark, share->text);
}

static bool begin(const struct inbox_settings *settings, struct share *share,
    struct subscription *subscription, struct subscription_place *place, struct err *err)
{
	owned_text char *text = xstrdup(place->text);
	struct commit commit = {.text = text, .offset = place->offset, .there = true};
	commit.ours = commit_text_parse(text, &commit.finished, &commit.mark);
	if (!open_folder(settings, share, err) || !open_sequence(settings, share, &commit, err) ||
	    !find_beginning(settings, share, subscription, place, &commit, err))
		return false;
	set_offsets(share, place, &commit);
	return true;
}

static bool is_subscribed(
    const struct inbox_settings *settings, struct share *share, const char *topic, struct err *err)
{
	share->topic_number = inbox_settings_topic(settings, topic);
	if (share->topic_number < 0)
		return err_set(err, ERR_RETRY, "the group has given it, and nobody asked for it");
	share->topic = settings->topics[share->topic_number];
	share->retry = inbox_settings_retry_of(settings, topic);
	share->salt = XXH3_64bits_withSeed(topic, strlen(topic), (uint64_t)share->partition);
	return true;
}

struct share *share_open(const struct inbox_settings *settings, struct share_store *common,
    struct subscription *subscription, struct subscription_place *place, struct err *err)
{
	struct share *share = xcalloc(1, sizeof *share);
	share->partition = place->partition;
	share->store = common ? common : &share->own;
	share->store->shares++;
	if (is_subscribed(settings, share, place->topic, err) &&
	    begin(settings, share, subscription, place, err))
		return share;
	err_prefix(err, "%s-%" PRId32, place->topic, share->partition);
	share_close(share);
	return NULL;
}

static void free_list(struct item_list *list)
{
	for (struct item *item; (item = item_list_take(list));)
		item_destroy(item);
}

void share_close(struct share *share)
{
	free_list(&share->arrived);
	free_list(&share->logging);
	close_state(share);
	share->store->shares--;
	offsets_finish(&share->offsets);
	free(share);
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

/* A long one is known by its digest. */
static void set_store_id(struct item *item, const void *id, size_t length)
{
	char digest[ITEM_DIGEST];
	item->id = item_short_id(id, length, digest, &item->id_length);
	if (item->id != digest)
		return;
	free(item->owned_leg);
	item->id = item->owned_leg = xstrdup(digest);
}

static void add_leg(struct item *item)
{
	const struct outbox_rules_header *leg =
	    item->letter ? item_header(item, "outbox-leg") : NULL;
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

/* What has none that we know is no message of a relay's, or a replay: it is new. */
static void take_position(struct item *item)
{
	const struct outbox_rules_header *header = item_header(item, "outbox-position");
	struct outbox_position position;
	if (header && outbox_position_parse(header->value, header->length, &position))
		set_store_id(item, header->value, header->length);
}

static void identify(const struct inbox_settings *settings, struct item *item)
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
		take_position(item);
	else
		add_leg(item);
}

static void say(struct item *item, enum item_fate fate, const char *format, const char *detail)
{
	item->fate = fate;
	free(item->reason);
	item->reason = xformat(format, detail);
}

/* Without an id, where one is needed. */
static void miss_id(struct share *share, const struct inbox_settings *settings, struct item *item)
{
	static const char *const consequences[] = {"it is a dead letter",
	    "it is handled, and its copies are not known", "its partition stands still"};
	enum outbox_inbox_policy policy = settings->given.without_id;
	if (!settings->told[share->topic_number])
		log_warn("inbox_without_id", {"topic", LOG_TEXT(share->topic)},
		    {"partition", LOG_INT(share->partition)},
		    {"offset", LOG_INT(item->public.offset)}, {"id", LOG_TEXT(settings->given.id)},
		    {"consequence", LOG_TEXT(consequences[policy])});
	settings->told[share->topic_number] = true;
	if (policy != OUTBOX_INBOX_PROCESS)
		say(item, policy == OUTBOX_INBOX_FAIL ? FATE_STAND : FATE_DEAD,
		    "there is no id in it: %s finds nothing", settings->given.id);
}

/* --- arrival -------------------------------------------------------------------------------- */

static uint64_t lane_of(const struct share *share, const struct item *item)
{
	const struct outbox_inbox_message *message = &item->public;
	if (!message->key) /* alone */
		return XXH3_64bits_withSeed(&message->offset, sizeof message->offset, ~share->salt);
	return XXH3_64bits_withSeed(message->key, message->key_length, share->salt);
}

static int number_of(const struct outbox_rules_header *header)
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
	    item->letter ? item_header(item, "outbox-group") : NULL;
	return group && (group->length != strlen(settings->given.group) ||
			    memcmp(group->value, settings->given.group, group->length) != 0);
}

bool share_arrive(struct share *share, const struct inbox_settings *settings, struct item *item)
{
	int64_t offset = item->public.offset;
	if (offset < share->read || share->stops & STOP_UNSET) {
		item_destroy(item);
		return false;
	}
	share->read = offset + 1;
	item->share = share;
	item->public.topic = share->topic;
	if (share->retry < 0)
		item_drop_claims(item);
	item->lane = lane_of(share, item);
	if (item->letter)
		item->public.attempt += number_of(item_header(item, "outbox-attempts"));
	identify(settings, item);
	if (is_for_others(settings, item))
		item->fate = FATE_DROP;
	share->items++;
	share->bytes += (int64_t)item->bytes;
	item_list_add(&share->arrived, item);
	return true;
}

/* --- the store ------------------------------------------------------------------------------ */

struct outbox_dedup_id share_id(const struct item *item)
{
	return (struct outbox_dedup_id){
	    item->id, item->id_length, item->public.time_ms, item->public.offset};
}

static bool is_asked(const struct share *share, const struct item *item)
{
	return share->store->dedup && !item->checked && item->id && item->fate == FATE_HANDLE &&
	       (!item->known || share->own.dedup);
}

static void answer(struct share *share, struct item *item, enum outbox_dedup_state state)
{
	item->checked = true;
	item->fate = state == OUTBOX_DEDUP_NEW       ? FATE_HANDLE
		     : state == OUTBOX_DEDUP_PENDING ? FATE_ASK
						     : FATE_COPY;
	item->pending = state == OUTBOX_DEDUP_NEW;
	share->store->pending += item->pending;
	share->pending += item->pending;
}

bool share_ask_again(struct share *share, struct item *item, struct err *err)
{
	const struct outbox_dedup_id id = share_id(item);
	enum outbox_dedup_state state;
	struct outbox_error error;
	if (!outbox_dedup_check(share->store->dedup, &id, 1, &state, &error))
		return outbox_error_take(&error, err);
	answer(share, item, state);
	return true;
}

/* Some id of a batch is refused: the message that has it is a dead letter, the others are not. */
static bool check_one_by_one(
    struct share *share, struct item *const *asked, size_t count, struct err *err)
{
	for (size_t i = 0; i < count; i++) {
		struct err why;
		if (share_ask_again(share, asked[i], &why))
			continue;
		if (why.kind != ERR_REJECT) {
			*err = why;
			return false;
		}
		say(asked[i], FATE_DEAD, "its id is refused: %s", why.message);
	}
	return true;
}

/* The first `count` that have arrived. */
static bool check(struct share *share, size_t count, struct err *err)
{
	struct outbox_dedup_id ids[BATCH];
	struct item *asked[BATCH], *item = share->arrived.first;
	enum outbox_dedup_state states[BATCH];
	struct outbox_error error;
	size_t asking = 0;
	for (size_t i = 0; i < count; i++, item = item->link)
		if (is_asked(share, item)) {
			ids[asking] = share_id(item);
			asked[asking++] = item;
		}
	if (asking && !outbox_dedup_check(share->store->dedup, ids, asking, states, &error)) {
		if (error.kind == OUTBOX_REJECT)
			return check_one_by_one(share, asked, asking, err);
		return outbox_error_take(&error, err);
	}
	for (size_t i = 0; i < asking; i++)
		answer(share, asked[i], states[i]);
	return true;
}

bool share_log(struct share *share, struct item_list *ret_items, struct err *err)
{
	struct outbox_dedup_id ids[BATCH];
	struct outbox_error error;
	size_t count = 0;
	for (struct item *item = share->logging.first; item && count < BATCH; item = item->link)
		ids[count++] = share_id(item);
	if (count == 0)
		return true;
	if (!outbox_dedup_done(share->store->dedup, ids, count, &error)) {
		if (error.kind != OUTBOX_FENCED)
			return outbox_error_take(&error, err);
		log_warn("inbox_handled_twice", {"topic", LOG_TEXT(share->topic)},
		    {"partition", LOG_INT(share->partition)}, {"error", LOG_TEXT(error.message)});
	}
	for (size_t i = 0; i < count; i++) {
		struct item *item = item_list_take(&share->logging);
		item->pending = false;
		item_list_add(ret_items, item);
	}
	share->store->pending -= (int64_t)count;
	share->pending -= (int64_t)count;
	share->unflushed = true;
	return true;
}

/* --- the rules ------------------------------------------------------------------------------ */

static bool is_judged(const struct item *item)
{
	return item->fate == FATE_HANDLE && !item->judged;
}

static void sentence(struct item *item, const struct outbox_rules_verdict *verdict)
{
	item->judged = true;
	if (verdict->action == OUTBOX_RULES_DROP)
		say(item, FATE_DROP, "rule %s", verdict->name);
	else if (verdict->action == OUTBOX_RULES_DEAD_LETTER)
		say(item, FATE_DEAD, "rule %s", verdict->name);
}

static bool judge(struct share *share, size_t count, struct err *err)
{
	struct outbox_rules_message messages[BATCH];
	struct outbox_rules_verdict verdicts[BATCH];
	struct item *judged[BATCH], *item = share->arrived.first;
	struct outbox_error error;
	size_t judging = 0;
	for (size_t i = 0; i < count; i++, item = item->link)
		if (is_judged(item)) {
			messages[judging] = message_of(item);
			judged[judging++] = item;
		}
	if (judging && !outbox_rules_check(share->rules, messages, judging, verdicts, &error))
		return outbox_error_take(&error, err);
	for (size_t i = 0; i < judging; i++)
		sentence(judged[i], &verdicts[i]);
	return true;
}

/* --- admission ------------------------------------------------------------------------------ */

/* Also what was finished beyond the committed offset. */
static bool is_known(struct share *share, int64_t offset)
{
	if (offset < share->offsets.done)
		return true;
	share->behind = false;
	bool known = !offsets_take(&share->offsets, offset);
	share->changed |= known;
	return known;
}

static void look_at_text(struct share *share)
{
	char text[COMMIT_TEXT_SIZE];
	if (++share->taken < LOOK_EVERY)
		return;
	share->taken = 0;
	size_t needed = commit_text_write(&share->offsets, "", text);
	if (commit_text_is_full(false, needed + share->mark_length, share->mark_length))
		share->stops |= STOP_TEXT;
}

static void meet(struct share *share, const struct inbox_settings *settings, struct item *item)
{
	item->met = true;
	item->known = is_known(share, item->public.offset);
	share->known += item->known;
	if (!item->known)
		look_at_text(share);
	if (item->fate == FATE_HANDLE && !item->public.id && !item->known &&
	    !settings->by_position && (settings->given.dedup || settings->given.take))
		miss_id(share, settings, item);
}

/* The first that have arrived, as far as they are in reach of what is not finished; at most so
 * many. */
static size_t meet_first(struct share *share, const struct inbox_settings *settings, size_t most)
{
	size_t count = 0;
	struct item *item = share->arrived.first;
	for (; item && count < most; item = item->link, count++) {
		if (!item->met && !offsets_reaches(&share->offsets, item->public.offset))
			break;
		if (!item->met)
			meet(share, settings, item);
	}
	return count;
}

/* How many more may be pending. Of a store of several, a partition leaves as much as it has: so
 * that others go on beside those that are stuck. */
static size_t room(const struct share *share, const struct inbox_settings *settings)
{
	int64_t left = settings->spec.pending - share->store->pending;
	if (!share->store->dedup)
		return BATCH;
	if (share->store->shares > 1)
		left = (left - share->pending + 1) / 2;
	return left < 0 ? 0 : left < BATCH ? (size_t)left : BATCH;
}

bool share_admit(struct share *share, const struct inbox_settings *settings,
    struct item_list *ret_items, struct err *err)
{
	for (size_t count; (count = meet_first(share, settings, room(share, settings))) > 0;) {
		if (!check(share, count, err) || (share->rules && !judge(share, count, err)))
			return false;
		while (count-- > 0)
			item_list_add(ret_items, item_list_take(&share->arrived));
	}
	return true;
}

bool share_flush(struct share *share, struct err *err)
{
	struct outbox_error error;
	if (!share->unflushed)
		return true;
	if (!outbox_dedup_flush(share->store->dedup, &error))
		return outbox_error_take(&error, err);
	share->unflushed = false;
	return true;
}

/* --- commits -------------------------------------------------------------------------------- */

/* Up to which offset the state knows all that is done. -1: what was before is still being read. */
static int64_t known_to(const struct share *share)
{
	return share->behind || share->known ? -1 : share->offsets.done;
}

/* Of rules first: what they recorded of messages that are not done passes again. The marks of
 * `sequence` are those of the offset that is committed. */
static bool make_durable(
    struct share *share, const struct inbox_settings *settings, struct err *err)
{
	struct outbox_error error;
	int64_t done = share->offsets.done, offset = settings->by_position ? done : known_to(share);
	if (share->rules && !outbox_rules_checkpoint(share->rules, known_to(share), &error))
		return outbox_error_take(&error, err);
	if (share->store->dedup && !outbox_dedup_checkpoint(share->store->dedup, offset, &error))
		return outbox_error_take(&error, err);
	return true;
}

bool share_checkpoint(struct share *share, const struct inbox_settings *settings, struct err *err)
{
	char mark[COMMIT_TEXT_MARK + 1] = "";
	fault_point("inbox_handled");
	if (!make_durable(share, settings, err))
		return false;
	fault_point("inbox_durable");
	size_t length =
	    settings->by_position ? outbox_dedup_mark(share->own.dedup, mark, sizeof mark) : 0;
	if (length >= sizeof mark) {
		share->stops |= STOP_STANDING;
		return err_set(err, ERR_RETRY,
		    "the positions of sequence take %zu bytes, and a commit has room for %d: read "
		    "topics of fewer publishers and shards",
		    length, COMMIT_TEXT_MARK);
	}
	length = commit_text_write(&share->offsets, mark, share->text);
	share->mark_length = strlen(mark);
	share->committed = share->offsets.done;
	share->taken = 0;
	if (commit_text_is_full(share->stops & STOP_TEXT, length, share->mark_length))
		share->stops |= STOP_TEXT;
	else
		share->stops &= ~(unsigned)STOP_TEXT;
	return true;
}
