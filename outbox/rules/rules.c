/*
 * Rules that limit how many messages of a key are admitted. [opening] restores the admitted
 * messages from the log; [a message] is the check: look_up_message, judge_by for each rule,
 * record_all if it is admitted.
 */
#include "rules.h"

#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "clock.h"
#include "outbox_error.h"
#include "rules_log.h"
#include "rules_private.h"
#include "rules_shared.h"
#include "rules_spec.h"
#include "text.h"

/* A message as a rule sees it. */
struct look {
	struct fingerprint hash;
	bool has_key, known;
};

struct outbox_rules {
	struct rule_list list;
	struct rule_places places;   /* texts of its own */
	struct rules_shared *shared; /* a server has the records; NULL: the log has them */
	struct look *looks;          /* results for the current message */
	struct text key;
	struct rules_log *log;
	int64_t newest_ms;
	uint64_t verdicts[3], again; /* by action */
};

static bool fail_rules(struct outbox_error *error, const struct err *err)
{
	outbox_error_of(err, error);
	return false;
}

/* --- keys ----------------------------------------------------------------------------------- */

/*
 * The upper half of `low` is the rule's tag, by which an entry of a log finds its rule. If two
 * rules have the same tag, both load the entry, and one of them never looks it up.
 */
static struct fingerprint tag_hash(const struct rule *rule, struct fingerprint hash)
{
	hash.low = (hash.low & UINT32_MAX) | (uint64_t)rule->tag << 32;
	return hash;
}

static void prepare_rule(struct rule *rule, uint64_t seed)
{
	seed = XXH3_64bits_withSeed(rule->name, strlen(rule->name), seed);
	rule->tag = (uint32_t)seed;
	rule->seed = XXH3_64bits_withSeed(rule->expression, strlen(rule->expression), seed);
	rule->width = rules_log_width(rule->reach_ms + rule->late_ms);
	rule->oldest_ms = INT64_MIN;
}

static bool has_key(struct outbox_rules *rules, const struct rule *rule,
    struct rule_message *message, struct fingerprint *ret_hash)
{
	text_clear(&rules->key);
	if (!rule_key_add(rule->key, message, &rules->key))
		return false;
	*ret_hash = tag_hash(rule, fingerprint_of(rules->key.data, rules->key.length, rule->seed));
	return true;
}

/* --- opening -------------------------------------------------------------------------------- */

static void note_newest(struct outbox_rules *rules, int64_t time_ms)
{
	if (time_ms > rules->newest_ms)
		rules->newest_ms = time_ms;
}

struct reading {
	struct outbox_rules *rules;
	int width;
};

static void restore_occurrence(void *context, const struct key_entry *entry)
{
	const struct reading *reading = context;
	const struct occurrence occurrence = {entry->time_ms, entry->offset};
	struct outbox_rules *rules = reading->rules;

	note_newest(rules, entry->time_ms);
	for (size_t i = 0; i < rules->list.count; i++) {
		struct rule *rule = rules->list.rules[i];
		/* No break: two rules may have the same tag (tag_hash). */
		if (rule->tag == (uint32_t)(entry->hash.low >> 32))
			occurrences_load(
			    rule->width == reading->width ? &rule->known : &rule->moved,
			    entry->hash, &occurrence);
	}
}

static bool uses_width(const struct outbox_rules *rules, int width)
{
	for (size_t i = 0; i < rules->list.count; i++)
		if (rules->list.rules[i]->width == width)
			return true;
	return false;
}

static bool restore_rules(struct outbox_rules *rules, struct err *err)
{
	for (int i = 0; i < RULES_LOG_WIDTHS; i++) {
		struct reading reading = {rules, i};
		bool used = uses_width(rules, i);
		if ((used || rules_log_has(rules->log, i)) &&
		    !rules_log_read(rules->log, i, used, restore_occurrence, &reading, err))
			return false;
	}
	return true;
}

static bool record_occurrence(struct outbox_rules *rules, struct rule *rule,
    struct fingerprint hash, const struct occurrence *occurrence, struct err *err)
{
	const struct key_entry entry = {hash, occurrence->mark, occurrence->time_ms};
	if (!rules_log_add(rules->log, rule->width, &entry, err))
		return false;
	occurrences_add(&rule->known, hash, occurrence);
	/*
	 * Only recorded messages move the time. A refused one would move it on until a restart, and
	 * would make the rules forget occurrences that a late message is still compared with.
	 */
	note_newest(rules, occurrence->time_ms);
	return true;
}

struct moving {
	struct outbox_rules *rules;
	struct rule *rule;
	struct err *err;
	bool good;
};

static void move_occurrence(
    void *context, struct fingerprint hash, const struct occurrence *occurrence)
{
	struct moving *moving = context;
	if (moving->good && !occurrences_have(&moving->rule->known, hash, occurrence))
		moving->good =
		    record_occurrence(moving->rules, moving->rule, hash, occurrence, moving->err);
}

static void age_rule(struct outbox_rules *rules, struct rule *rule)
{
	if (rules->newest_ms >= 0)
		rule->oldest_ms = rule->type->oldest(rule, rules->newest_ms - rule->late_ms);
}

/* A rule that needs another width than before moves its occurrences to that width. */
static bool settle_rule(struct outbox_rules *rules, struct rule *rule, struct err *err)
{
	struct moving moving = {rules, rule, err, true};
	age_rule(rules, rule);
	occurrences_settle(&rule->known, rule->oldest_ms);
	occurrences_settle(&rule->moved, rule->oldest_ms);
	occurrences_each(&rule->moved, move_occurrence, &moving);
	occurrences_finish(&rule->moved);
	return moving.good;
}

static bool remove_unused(struct outbox_rules *rules, struct err *err)
{
	for (int i = 0; i < RULES_LOG_WIDTHS; i++)
		if (!uses_width(rules, i) && rules_log_has(rules->log, i) &&
		    !rules_log_remove(rules->log, i, err))
			return false;
	return true;
}

static bool open_log(struct outbox_rules *rules, const char *path, struct err *err)
{
	rules->log = rules_log_open(path, err);
	if (!rules->log)
		return false;

	for (size_t i = 0; i < rules->list.count; i++)
		prepare_rule(rules->list.rules[i], rules_log_seed(rules->log));
	if (!restore_rules(rules, err))
		return false;

	for (size_t i = 0; i < rules->list.count; i++)
		if (!settle_rule(rules, rules->list.rules[i], err))
			return false;
	/* In this order: moved occurrences are durable before their earlier logs are removed. */
	return rules_log_checkpoint(rules->log, rules_log_offset(rules->log), err) &&
	       remove_unused(rules, err);
}

static bool set_rule_lines(
    struct outbox_rules *rules, const struct outbox_rules_settings *settings, struct err *err)
{
	rules->places = (struct rule_places){xstrdup(settings->user), xstrdup(settings->content),
	    xstrdup(settings->channel), xstrdup(settings->zone)};
	if (!rule_list_parse(
		&rules->list, settings->lines, settings->count, &rules->places, NULL, err))
		return false;
	rules->looks = xcalloc(rules->list.count + 1, sizeof *rules->looks);
	return true;
}

static bool open_records(
    struct outbox_rules *rules, const struct outbox_rules_settings *settings, struct err *err)
{
	if (!settings->store)
		return open_log(rules, settings->path, err);
	rules->shared = rules_shared_open(settings->store, settings->user, err);
	return rules->shared && rules_shared_accept(rules->shared, &rules->list, err);
}

struct outbox_rules *outbox_rules_open_as(
    const struct outbox_rules_settings *settings, struct outbox_error *error)
{
	struct err err;
	struct outbox_rules *rules = xcalloc(1, sizeof *rules);
	rules->newest_ms = -1;
	if (set_rule_lines(rules, settings, &err) && open_records(rules, settings, &err))
		return rules;
	outbox_rules_close(rules);
	fail_rules(error, &err);
	return NULL;
}

struct outbox_rules *outbox_rules_open(
    const char *path, const char *const *lines, size_t count, struct outbox_error *error)
{
	return outbox_rules_open_as(
	    &(struct outbox_rules_settings){.path = path, .lines = lines, .count = count}, error);
}

static void free_rule_places(struct rule_places *places)
{
	free((char *)places->user);
	free((char *)places->content);
	free((char *)places->channel);
	free((char *)places->zone);
}

void outbox_rules_close(struct outbox_rules *rules)
{
	if (!rules)
		return;
	rule_list_finish(&rules->list);
	rules_shared_close(rules->shared);
	rules_log_close(rules->log);
	free_rule_places(&rules->places);
	text_finish(&rules->key);
	free(rules->looks);
	free(rules);
}

/* --- other lines ---------------------------------------------------------------------------- */

/* The rule whose records the new one takes over: one with the same name and key. NULL: none. */
static struct rule *find_former(const struct outbox_rules *rules, const struct rule *rule)
{
	struct rule *former = rule_list_find(&rules->list, rule->name);
	return former && text_equal(former->expression, rule->expression) ? former : NULL;
}

/* Nothing was recorded in this width since the rules were opened. */
static void ignore_entry(void *context, const struct key_entry *entry)
{
	(void)context;
	(void)entry;
}

/*
 * Makes all records of the new rules durable, and changes nothing of the old ones. A rule that
 * stays in its width keeps its log; otherwise its occurrences are written to the log of the new
 * width. If that fails, the log has some of them twice, which does no harm (occurrences_load).
 */
static bool prepare_logs(struct outbox_rules *rules, const struct rule_list *fresh, struct err *err)
{
	for (size_t i = 0; i < fresh->count; i++) {
		struct rule *rule = fresh->rules[i], *former = find_former(rules, rule);
		struct moving moving = {rules, rule, err, true};

		prepare_rule(rule, rules_log_seed(rules->log));
		if (!rules_log_has_width(rules->log, rule->width) &&
		    !rules_log_read(rules->log, rule->width, true, ignore_entry, NULL, err))
			return false;
		if (!former || former->width == rule->width)
			continue;
		age_rule(rules, rule);
		occurrences_each(&former->known, move_occurrence, &moving);
		if (!moving.good)
			return false;
		occurrences_settle(&rule->known, rule->oldest_ms);
	}
	return rules_log_checkpoint(rules->log, rules_log_offset(rules->log), err);
}

static void take_over_records(struct outbox_rules *rules, struct rule *rule)
{
	struct rule *former = find_former(rules, rule);

	if (!former)
		return;
	/* In another width, or on a server, the new rule has them already. */
	if (rules->log && former->width == rule->width) {
		rule->known = former->known;
		former->known = (struct occurrences){0};
	}
	rule->seen = former->seen;
	rule->exceeded = former->exceeded;
	rule->keyless = former->keyless;
}

/* Cannot fail: a log that is no longer used, and cannot be removed now, is removed at the next
 * opening. */
static void replace_list(struct outbox_rules *rules, struct rule_list *fresh)
{
	struct err ignored;

	for (size_t i = 0; i < fresh->count; i++)
		take_over_records(rules, fresh->rules[i]);
	rule_list_finish(&rules->list);
	rules->list = *fresh;
	*fresh = (struct rule_list){0};
	rules->looks = xrealloc(rules->looks, (rules->list.count + 1) * sizeof *rules->looks);

	for (int i = 0; rules->log && i < RULES_LOG_WIDTHS; i++)
		rules_log_keep(rules->log, i, uses_width(rules, i));
	if (rules->log && !remove_unused(rules, &ignored))
		return;
}

bool outbox_rules_change(
    struct outbox_rules *rules, const char *const *lines, size_t count, struct outbox_error *error)
{
	struct rule_list fresh;
	struct err err;
	bool good = rule_list_parse(&fresh, lines, count, &rules->places, NULL, &err) &&
		    (rules->shared ? rules_shared_accept(rules->shared, &fresh, &err)
				   : prepare_logs(rules, &fresh, &err));

	if (good)
		replace_list(rules, &fresh);
	rule_list_finish(&fresh);
	return good || fail_rules(error, &err);
}

/* --- a message ------------------------------------------------------------------------------ */

/* An even mark, made from the message's place. A message without a place gets a unique mark. */
static int64_t mark_of(struct outbox_rules *rules, const struct outbox_rules_message *message)
{
	if (message->offset < 0)
		return clock_random() & ~INT64_C(1);
	text_clear(&rules->key);
	text_append(&rules->key, (const char *)&message->partition, sizeof message->partition);
	text_append(&rules->key, (const char *)&message->offset, sizeof message->offset);
	text_add(&rules->key, message->topic ? message->topic : "");
	uint64_t hash =
	    XXH3_64bits_withSeed(rules->key.data, rules->key.length, rules_log_seed(rules->log));
	return (int64_t)(hash >> 2 << 1);
}

/*
 * A message keeps its time if that is at most now or the newest recorded time, even if the clock
 * was set back since. A message with a later time is early, and counts as of now.
 */
static struct occurrence occurrence_of(
    struct outbox_rules *rules, const struct outbox_rules_message *message, int64_t now_ms)
{
	int64_t reached = now_ms > rules->newest_ms ? now_ms : rules->newest_ms;
	struct occurrence occurrence = {message->time_ms, mark_of(rules, message)};
	if (message->time_ms < 0 || message->time_ms > reached)
		occurrence = (struct occurrence){now_ms, occurrence.mark | 1};
	return occurrence;
}

/* Did one of the rules record the message? Then all of them let it pass. */
static bool look_up_message(
    struct outbox_rules *rules, struct rule_message *message, const struct occurrence *occurrence)
{
	bool again = false;

	for (size_t i = 0; i < rules->list.count; i++) {
		struct rule *rule = rules->list.rules[i];
		struct look *look = &rules->looks[i];
		/* A few keys with each message, so that no message waits for long. */
		occurrences_sweep(&rule->known, rule->oldest_ms);
		look->has_key = has_key(rules, rule, message, &look->hash);
		look->known =
		    look->has_key && occurrences_have(&rule->known, look->hash, occurrence);
		(*(look->has_key ? &rule->seen : &rule->keyless))++;
		again = again || look->known;
	}
	return again;
}

static void judge_by(struct outbox_rules *rules, size_t number, int64_t time_ms,
    struct outbox_rules_verdict *verdict)
{
	struct rule *rule = rules->list.rules[number];
	const struct occurrences_key *known =
	    rules->looks[number].has_key ? occurrences_of(&rule->known, rules->looks[number].hash)
					 : NULL;
	if (!known || !rule->type->exceeds(rule, known, time_ms))
		return;
	rule->exceeded++;
	if (verdict->action == OUTBOX_RULES_PASS &&
	    (verdict->rule < 0 || rule->action != OUTBOX_RULES_PASS))
		*verdict = (struct outbox_rules_verdict){
		    .action = rule->action, .rule = (int)number, .name = rule->name};
}

static bool record_all(
    struct outbox_rules *rules, const struct occurrence *occurrence, struct err *err)
{
	for (size_t i = 0; i < rules->list.count; i++) {
		const struct look *look = &rules->looks[i];
		if (look->has_key && !look->known &&
		    !record_occurrence(rules, rules->list.rules[i], look->hash, occurrence, err))
			return false;
	}
	return true;
}

static bool judge_message(struct outbox_rules *rules, const struct outbox_rules_message *from,
    int64_t now_ms, struct outbox_rules_verdict *verdict, struct err *err)
{
	OWNED(rule_message_finish) struct rule_message message = {from};
	const struct occurrence occurrence = occurrence_of(rules, from, now_ms);

	*verdict = (struct outbox_rules_verdict){.rule = -1};
	verdict->again = look_up_message(rules, &message, &occurrence);
	for (size_t i = 0; i < rules->list.count && !verdict->again; i++)
		judge_by(rules, i, occurrence.time_ms, verdict);

	/* A refused message is recorded by no rule, so it uses up no limit. */
	if (verdict->action == OUTBOX_RULES_PASS && !record_all(rules, &occurrence, err))
		return false;

	return true;
}

static bool judge_by_log(struct outbox_rules *rules, const struct outbox_rules_message *messages,
    size_t count, int64_t now_ms, struct outbox_rules_verdict *ret_verdicts, struct err *err)
{
	for (size_t i = 0; i < rules->list.count; i++)
		age_rule(rules, rules->list.rules[i]);
	for (size_t i = 0; i < count; i++)
		if (!judge_message(rules, &messages[i], now_ms, &ret_verdicts[i], err))
			return false;
	return true;
}

bool rules_check_at(struct outbox_rules *rules, const struct outbox_rules_message *messages,
    size_t count, int64_t now_ms, struct outbox_rules_verdict *ret_verdicts, struct err *err)
{
	bool good = rules->shared ? rules_shared_judge(rules->shared, &rules->list, messages, count,
					now_ms, ret_verdicts, err)
				  : judge_by_log(rules, messages, count, now_ms, ret_verdicts, err);

	for (size_t i = 0; good && i < count; i++) {
		rules->verdicts[ret_verdicts[i].action]++;
		rules->again += ret_verdicts[i].again;
	}
	return good;
}

bool outbox_rules_check(struct outbox_rules *rules, const struct outbox_rules_message *messages,
    size_t count, struct outbox_rules_verdict *ret_verdicts, struct outbox_error *error)
{
	struct err err;
	return rules_check_at(rules, messages, count, clock_wall_us() / 1000, ret_verdicts, &err) ||
	       fail_rules(error, &err);
}

/* --- the rest ------------------------------------------------------------------------------- */

bool outbox_rules_checkpoint(struct outbox_rules *rules, int64_t offset, struct outbox_error *error)
{
	struct err err;
	/* A server's records are durable as far as the server makes them so. */
	return rules->shared || rules_log_checkpoint(rules->log, offset, &err) ||
	       fail_rules(error, &err);
}

void outbox_rules_stats(const struct outbox_rules *rules, struct outbox_rules_stats *ret_stats)
{
	*ret_stats = (struct outbox_rules_stats){
	    .rules = rules->list.count,
	    .disk_bytes = rules->log ? rules_log_bytes(rules->log) : 0,
	    .newest_ms = rules->newest_ms,
	    .offset = rules->log ? rules_log_offset(rules->log) : -1,
	    .passed = rules->verdicts[OUTBOX_RULES_PASS],
	    .dropped = rules->verdicts[OUTBOX_RULES_DROP],
	    .dead_lettered = rules->verdicts[OUTBOX_RULES_DEAD_LETTER],
	    .again = rules->again,
	};

	for (size_t i = 0; i < rules->list.count; i++) {
		const struct occurrences *known = &rules->list.rules[i]->known;
		ret_stats->keys += known->keys;
		ret_stats->occurrences += known->count;
		ret_stats->memory_bytes += occurrences_bytes(known);
	}
}

bool outbox_rule_stats(
    const struct outbox_rules *rules, size_t number, struct outbox_rule_stats *ret_stats)
{
	if (number >= rules->list.count)
		return false;

	const struct rule *rule = rules->list.rules[number];
	*ret_stats = (struct outbox_rule_stats){
	    .name = rule->name,
	    .keys = rule->known.keys,
	    .occurrences = rule->known.count,
	    .seen = rule->seen,
	    .exceeded = rule->exceeded,
	    .keyless = rule->keyless,
	};
	return true;
}
