#include "share.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#define XXH_INLINE_ALL
#include <xxhash.h>
#include "cleanup.h"
#include "clock.h"
#include "fault.h"
#include "letters.h"
#include "logging.h"
#include "position.h"
#include "text.h"

enum { BATCH = 1000, FOLDERS = 100 };

static bool take_error(const struct outbox_error *error, struct err *err)
{
	return err_set(err, (enum err_kind)error->kind, "%s", error->message);
}

/* --- folders -------------------------------------------------------------------------------- */

static bool make_folder(const char *path, struct err *err)
{
	if (mkdir(path, 0700) == 0 || errno == EEXIST)
		return true;
	return err_set(err,
	    errno == EACCES || errno == EPERM || errno == ENOENT ? ERR_CONFIG : ERR_RETRY,
	    "path: %s cannot be made: %s", path, strerror(errno));
}

/* number 0: the usual one; others while a process that does not know yet that it has lost the
 * partition has that open. */
static char *folder_of(const struct inbox_settings *settings, const struct share *share, int number)
{
	char *usual =
	    xformat("%s/%s-%" PRId32, settings->given.path, share->topic, share->partition);
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
	return share->own.dedup || take_error(&error, err);
}

static bool open_rules(
    const struct inbox_settings *settings, struct share *share, const char *folder, struct err *err)
{
	struct outbox_error error;
	if (settings->rule_count == 0)
		return true;
	owned_text char *path = xformat("%s/rules", folder);
	share->rules = outbox_rules_open(path, settings->given.rules, settings->rule_count, &error);
	return share->rules || take_error(&error, err);
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
	owned_text char *folder = folder_of(settings, share, number);
	if (make_folder(settings->given.path, err) && make_folder(folder, err) &&
	    open_store(settings, share, folder, err) && open_rules(settings, share, folder, err))
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

static bool open_sequence(
    const struct inbox_settings *settings, struct share *share, const char *mark, struct err *err)
{
	struct outbox_error error;
	if (!settings->by_position)
		return true;
	share->own.dedup = outbox_dedup_open(settings->given.dedup, &error);
	if (share->own.dedup && (!mark[0] || outbox_dedup_resume(share->own.dedup, mark, &error)))
		return true;
	return take_error(&error, err);
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

/*
 * Before what is committed, if the state does not reach so far: it was with somebody else, or is
 * lost. What is older than the window is not needed.
 */
static int64_t first_needed(const struct inbox_settings *settings, int64_t known, int64_t committed,
    int64_t low, int64_t window_at)
{
	int64_t from = known;
	if (known >= committed || (known < 0 && !settings->local))
		return committed;
	if (settings->local && settings->spec.kind != DEDUP_BITMAP && window_at > from)
		from = window_at;
	from = low > from ? low : from;
	return from < committed ? from : committed;
}

struct range {
	int64_t low, window_at, high;
};

static bool find_range(const struct inbox_settings *settings, struct subscription *subscription,
    const struct subscription_place *place, struct range *ret_range, struct err *err)
{
	int64_t now_ms = clock_wall_us() / 1000;
	return subscription_range(subscription, place->topic, place->partition,
	    now_ms - settings->spec.window_ms, &ret_range->low, &ret_range->window_at,
	    &ret_range->high, err);
}

/* Of a group that has committed nothing, or something that is not there. */
static void begin_as_set(const struct inbox_settings *settings, struct share *share,
    const struct range *range, struct subscription_place *place)
{
	if (place->offset >= 0)
		share_tell_gone(share, place->offset);
	if (settings->given.start == OUTBOX_INBOX_STAND_STILL)
		share->stops |= STOP_STANDING;
	place->offset = settings->given.start == OUTBOX_INBOX_EARLIEST ? range->low : range->high;
}

/* *ret_committed: where it goes on; the place's offset: where reading begins. */
static bool find_beginning(const struct inbox_settings *settings, struct share *share,
    struct subscription *subscription, struct subscription_place *place, int64_t *ret_committed,
    struct err *err)
{
	struct range range;
	int64_t known = offset_of_state(settings, share);
	*ret_committed = place->offset;
	if (place->offset >= 0 && known >= place->offset)
		return true;
	if (!find_range(settings, subscription, place, &range, err))
		return false;
	if (place->offset < 0 || place->offset > range.high) {
		begin_as_set(settings, share, &range, place);
		*ret_committed = place->offset;
		return true;
	}
	place->offset = first_needed(settings, known, *ret_committed, range.low, range.window_at);
	if (place->offset < *ret_committed)
		log_info("inbox_rebuild", {"topic", LOG_TEXT(share->topic)},
		    {"partition", LOG_INT(share->partition)}, {"from", LOG_INT(place->offset)},
		    {"to", LOG_INT(*ret_committed)});
	return true;
}

static void tell_foreign(const struct share *share, const struct subscription_place *place)
{
	log_warn("inbox_foreign_text", {"topic", LOG_TEXT(share->topic)},
	    {"partition", LOG_INT(share->partition)}, {"offset", LOG_INT(place->offset)},
	    {"consequence",
		LOG_TEXT("the offset is taken, the text beside it is not: somebody else commits "
			 "for this group, or did; messages beyond the offset are handled again")});
}

static bool begin(const struct inbox_settings *settings, struct share *share,
    struct subscription *subscription, struct subscription_place *place, struct err *err)
{
	owned_text char *text = xstrdup(place->text);
	const char *finished, *mark;
	int64_t committed = -1, before = place->offset;
	bool ours = commit_text_parse(text, &finished, &mark);
	if (!open_folder(settings, share, err) || !open_sequence(settings, share, mark, err) ||
	    !find_beginning(settings, share, subscription, place, &committed, err))
		return false;
	if (!offsets_init(&share->offsets, committed, committed == before ? finished : "") || !ours)
		tell_foreign(share, place);
	return true;
}

struct share *share_open(const struct inbox_settings *settings, struct share_store *common,
    struct subscription *subscription, struct subscription_place *place, struct err *err)
{
	struct share *share = xcalloc(1, sizeof *share);
	share->topic = xstrdup(place->topic);
	share->partition = place->partition;
	share->retry = inbox_settings_retry_of(settings, place->topic);
	share->salt =
	    XXH3_64bits_withSeed(share->topic, strlen(share->topic), (uint64_t)share->partition);
	share->store = common ? common : &share->own;
	if (begin(settings, share, subscription, place, err))
		return share;
	err_prefix(err, "%s-%" PRId32, share->topic, share->partition);
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
	offsets_finish(&share->offsets);
	free(share->topic);
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
	item->id = id;
	item->id_length = length;
	if (length <= OUTBOX_DEDUP_ID_MAX)
		return;
	XXH128_hash_t hash = XXH3_128bits(id, length);
	free(item->owned_leg);
	item->owned_leg = xformat("%016" PRIx64 "%016" PRIx64, hash.high64, hash.low64);
	item->id = item->owned_leg;
	item->id_length = strlen(item->owned_leg);
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
	if (!share->told)
		log_warn("inbox_without_id", {"topic", LOG_TEXT(share->topic)},
		    {"partition", LOG_INT(share->partition)},
		    {"offset", LOG_INT(item->public.offset)}, {"id", LOG_TEXT(settings->given.id)},
		    {"consequence", LOG_TEXT(consequences[policy])});
	share->told = true;
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

/* Also what was finished beyond the committed offset. */
static bool is_known(struct share *share, int64_t offset)
{
	if (offset < share->offsets.done)
		return true;
	bool known = !offsets_take(&share->offsets, offset);
	share->changed |= known;
	return known;
}

bool share_arrive(struct share *share, const struct inbox_settings *settings, struct item *item)
{
	int64_t offset = item->public.offset;
	if (offset >= share->offsets.done && offset < share->offsets.next) {
		item_destroy(item); /* it is here, and was fetched twice */
		return false;
	}
	item->known = is_known(share, offset);
	if (item->known && !share->own.dedup && !share->rules) {
		item_destroy(item);
		return false;
	}
	item->share = share;
	item->public.topic = share->topic;
	item->lane = lane_of(share, item);
	if (item->letter)
		item->public.attempt += number_of(item_header(item, "outbox-attempts"));
	identify(settings, item);
	if (is_for_others(settings, item))
		item->fate = FATE_DROP;
	else if (!item->public.id && !item->known && !settings->by_position &&
		 (settings->given.dedup || settings->given.take))
		miss_id(share, settings, item);
	share->items++;
	share->bytes += (int64_t)item->bytes;
	item_list_add(&share->arrived, item);
	return true;
}

/* --- the store ------------------------------------------------------------------------------ */

static struct outbox_dedup_id id_of(const struct item *item)
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
}

bool share_ask_again(struct share *share, struct item *item, struct err *err)
{
	const struct outbox_dedup_id id = id_of(item);
	enum outbox_dedup_state state;
	struct outbox_error error;
	if (!outbox_dedup_check(share->store->dedup, &id, 1, &state, &error))
		return take_error(&error, err);
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
			ids[asking] = id_of(item);
			asked[asking++] = item;
		}
	if (asking && !outbox_dedup_check(share->store->dedup, ids, asking, states, &error)) {
		if (error.kind == OUTBOX_REJECT)
			return check_one_by_one(share, asked, asking, err);
		return take_error(&error, err);
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
		ids[count++] = id_of(item);
	if (count == 0)
		return true;
	if (!outbox_dedup_done(share->store->dedup, ids, count, &error)) {
		if (error.kind != OUTBOX_FENCED)
			return take_error(&error, err);
		log_warn("inbox_handled_twice", {"topic", LOG_TEXT(share->topic)},
		    {"partition", LOG_INT(share->partition)}, {"error", LOG_TEXT(error.message)});
	}
	for (size_t i = 0; i < count; i++) {
		struct item *item = item_list_take(&share->logging);
		item->pending = false;
		item_list_add(ret_items, item);
	}
	share->store->pending -= (int64_t)count;
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
		return take_error(&error, err);
	for (size_t i = 0; i < judging; i++)
		sentence(judged[i], &verdicts[i]);
	return true;
}

/* --- admission ------------------------------------------------------------------------------ */

static size_t room(const struct share *share, const struct inbox_settings *settings)
{
	int64_t left = settings->spec.pending - share->store->pending;
	size_t count = share->arrived.count < BATCH ? share->arrived.count : BATCH;
	if (!share->store->dedup)
		return count;
	return left < (int64_t)count ? (size_t)(left > 0 ? left : 0) : count;
}

bool share_admit(struct share *share, const struct inbox_settings *settings,
    struct item_list *ret_items, struct err *err)
{
	for (size_t count; (count = room(share, settings)) > 0;) {
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
		return take_error(&error, err);
	share->unflushed = false;
	return true;
}

/* --- commits -------------------------------------------------------------------------------- */

/* Of rules first: what they recorded of messages that are not done passes again. */
static bool make_durable(struct share *share, struct err *err)
{
	struct outbox_error error;
	int64_t offset = share->offsets.done;
	if (share->rules && !outbox_rules_checkpoint(share->rules, offset, &error))
		return take_error(&error, err);
	if (share->store->dedup && !outbox_dedup_checkpoint(share->store->dedup, offset, &error))
		return take_error(&error, err);
	return true;
}

bool share_checkpoint(struct share *share, struct err *err)
{
	char mark[COMMIT_TEXT_LIMIT + 1] = "";
	size_t length;
	fault_point("inbox_handled");
	if (!make_durable(share, err))
		return false;
	fault_point("inbox_durable");
	length = share->own.dedup ? outbox_dedup_mark(share->own.dedup, mark, sizeof mark) : 0;
	if (length >= sizeof mark)
		return err_set(err, ERR_RETRY,
		    "the positions of sequence take %zu bytes, and a commit has room for %d: read "
		    "topics of fewer slots and shards",
		    length, COMMIT_TEXT_LIMIT);
	length = commit_text_write(&share->offsets, mark, share->text);
	share->taken = 0;
	if (length > COMMIT_TEXT_LIMIT)
		share->stops |= STOP_TEXT;
	else if (length < COMMIT_TEXT_LIMIT / 2)
		share->stops &= ~(unsigned)STOP_TEXT;
	return true;
}
