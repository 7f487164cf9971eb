/*
 * Read rules_shared_judge: it makes a question from each message that a rule has a key for
 * (ask_about_message), has the store answer all questions in one round trip, and makes the verdicts
 * from the answers (judge_question).
 */
#include "rules_shared.h"

#include <stdlib.h>
#include <string.h>
#include <openssl/evp.h>
#include "cleanup.h"
#include "clock.h"
#include "fingerprint.h"
#include "pg.h"
#include "rules_store.h"
#include "text.h"

struct rules_shared {
	const struct rules_store_type *type;
	struct rules_store *store;
	struct rule_key *user; /* NULL: not given */
	struct text bytes;
	/* of the current call */
	struct rules_part *parts;
	struct rules_question *questions;
	size_t part_room, question_room;
};

/* --- life ----------------------------------------------------------------------------------- */

bool rules_shared_check_line(const char *line, struct err *err)
{
	struct rules_store_spec spec;
	struct redis_address address;
	bool good = rules_store_spec_parse(line, &spec, err);

	if (good && spec.server.url) {
		good = redis_address_parse(&spec.server, &address, err);
		redis_address_finish(&address);
	}
	good = good && (!spec.dsn || pg_dsn_check(spec.dsn, err));
	rules_store_spec_finish(&spec);
	return good;
}

bool rules_shared_check_list(const struct rule_list *list, struct err *err)
{
	for (size_t i = 0; i < list->count; i++)
		if (list->rules[i]->most > RULES_STORE_MOST)
			return err_set(err, ERR_CONFIG,
			    "rule %zu: most is %lld, and a shared store counts up to %d: lower it, "
			    "or leave rules_store out",
			    i + 1, (long long)list->rules[i]->most, RULES_STORE_MOST);
	return true;
}

static bool open_store(struct rules_shared *shared, const char *line, struct err *err)
{
	struct rules_store_spec spec;

	if (rules_store_spec_parse(line, &spec, err)) {
		shared->type = spec.type;
		shared->store = spec.type->open(&spec, err);
	}
	rules_store_spec_finish(&spec);
	return shared->store;
}

struct rules_shared *rules_shared_open(const char *line, const char *user, struct err *err)
{
	struct rules_shared *shared = xcalloc(1, sizeof *shared);
	bool given = user && user[0];

	shared->user = given ? rule_key_parse(user, err) : NULL;
	if ((!given || shared->user) && open_store(shared, line, err))
		return shared;
	rules_shared_close(shared);
	return NULL;
}

void rules_shared_close(struct rules_shared *shared)
{
	if (!shared)
		return;
	if (shared->store)
		shared->type->close(shared->store);
	rule_key_destroy(shared->user);
	text_finish(&shared->bytes);
	free(shared->parts);
	free(shared->questions);
	free(shared);
}

/* --- one user in each message --------------------------------------------------------------- */

static bool refuse_without_user(const struct rule_list *list, size_t number, struct err *err)
{
	const struct rule *rule = list->rules[number];

	return err_set(err, ERR_CONFIG,
	    "rule %zu: key=\"%.100s\" does not have the user: in a Redis Cluster all keys of a "
	    "message belong to one user, which chooses their node; set user, for example "
	    "user = header:user, and name it in the key of each rule",
	    number + 1, rule->expression);
}

bool rules_shared_accept(
    const struct rules_shared *shared, const struct rule_list *list, struct err *err)
{
	if (!rules_shared_check_list(list, err))
		return false;
	if (!shared->type->needs_user(shared->store))
		return true;

	for (size_t i = 0; i < list->count; i++) {
		const struct rule *rule = list->rules[i];
		/* Without a user, the only key of all rules does the same. */
		bool same = text_equal(rule->expression, list->rules[0]->expression);

		if (shared->user ? !rule_key_has(rule->key, shared->user) : !same)
			return refuse_without_user(list, i, err);
	}
	return true;
}

/* --- questions ------------------------------------------------------------------------------ */

/*
 * The server's records must be found by every process, so the hash has no secret seed. It is a
 * SHA-256, so that nobody can choose a user whose messages count as those of another user.
 */
static void hash_bytes(const struct text *bytes, unsigned char *ret_hash, size_t size)
{
	unsigned char digest[EVP_MAX_MD_SIZE] = {0};

	EVP_Digest(bytes->data, bytes->length, digest, NULL, EVP_sha256(), NULL);
	memcpy(ret_hash, digest, size);
}

/* A message without an offset gets a mark of its own. The time keeps apart the messages of a topic
 * that was deleted and made again. */
static int64_t mark_in_topic(const struct outbox_rules_message *message)
{
	struct {
		int64_t offset, time_ms, partition;
	} place = {message->offset, message->time_ms, message->partition};

	if (message->offset < 0)
		return clock_random();
	uint64_t seed = XXH3_64bits(&place, sizeof place);
	const char *topic = message->topic ? message->topic : "";
	return (int64_t)XXH3_64bits_withSeed(topic, strlen(topic), seed);
}

static void make_room(struct rules_shared *shared, size_t messages, size_t parts)
{
	if (messages > shared->question_room) {
		shared->questions =
		    xrealloc(shared->questions, messages * sizeof *shared->questions);
		shared->question_room = messages;
	}
	if (parts > shared->part_room) {
		shared->parts = xrealloc(shared->parts, parts * sizeof *shared->parts);
		shared->part_room = parts;
	}
}

/* The message's key for the rule, behind the rule's name and expression. */
static bool add_key_of(
    struct rules_shared *shared, const struct rule *rule, struct rule_message *message)
{
	struct text *bytes = &shared->bytes;

	text_clear(bytes);
	text_append(bytes, rule->name, strlen(rule->name) + 1);
	text_append(bytes, rule->expression, strlen(rule->expression) + 1);
	return rule_key_add(rule->key, message, bytes);
}

static bool make_part(struct rules_shared *shared, struct rule *rule, struct rule_message *message,
    int64_t time_ms, struct rules_part *ret_part)
{
	if (!add_key_of(shared, rule, message)) {
		rule->keyless++;
		return false;
	}
	rule->seen++;
	*ret_part = (struct rules_part){.rule = rule};
	hash_bytes(&shared->bytes, ret_part->key, sizeof ret_part->key);
	rule->type->span(rule, time_ms, &ret_part->span);
	ret_part->oldest_ms = rule->type->oldest(rule, time_ms - rule->late_ms);
	return true;
}

/* Only a message with a key for a rule has a tag, and every rule's key has the user. */
static void tag_question(struct rules_shared *shared, const struct rule_list *list,
    struct rule_message *message, struct rules_question *question)
{
	const struct rule_key *user = shared->user ? shared->user : list->rules[0]->key;

	text_clear(&shared->bytes);
	if (rule_key_add(user, message, &shared->bytes))
		hash_bytes(&shared->bytes, question->tag, sizeof question->tag);
}

/* A message whose time is in the future counts as of now. */
static void ask_about_message(struct rules_shared *shared, const struct rule_list *list,
    const struct outbox_rules_message *from, int64_t now_ms, struct rules_part *parts,
    struct rules_question *ret_question)
{
	OWNED(rule_message_finish) struct rule_message message = {from};
	bool early = from->time_ms < 0 || from->time_ms > now_ms;

	*ret_question = (struct rules_question){
	    .time_ms = early ? now_ms : from->time_ms, .mark = mark_in_topic(from), .parts = parts};
	for (size_t i = 0; i < list->count; i++)
		if (make_part(shared, list->rules[i], &message, ret_question->time_ms,
			&parts[ret_question->count]))
			ret_question->count++;
	if (ret_question->count)
		tag_question(shared, list, &message, ret_question);
}

/* --- verdicts ------------------------------------------------------------------------------- */

static int number_of(const struct rule_list *list, const struct rule *rule)
{
	int number = 0;
	while (list->rules[number] != rule)
		number++;
	return number;
}

static void judge_part(const struct rule_list *list, const struct rules_part *part,
    struct outbox_rules_verdict *verdict)
{
	int number = number_of(list, part->rule);
	struct rule *rule = list->rules[number];

	if (!part->exceeded)
		return;
	rule->exceeded++;
	if (verdict->action == OUTBOX_RULES_PASS &&
	    (verdict->rule < 0 || rule->action != OUTBOX_RULES_PASS))
		*verdict = (struct outbox_rules_verdict){
		    .action = rule->action, .rule = number, .name = rule->name};
}

static void judge_question(const struct rule_list *list, const struct rules_question *question,
    struct outbox_rules_verdict *ret_verdict)
{
	*ret_verdict = (struct outbox_rules_verdict){.rule = -1, .again = question->again};
	for (size_t i = 0; i < question->count && !question->again; i++)
		judge_part(list, &question->parts[i], ret_verdict);
}

bool rules_shared_judge(struct rules_shared *shared, const struct rule_list *list,
    const struct outbox_rules_message *messages, size_t count, int64_t now_ms,
    struct outbox_rules_verdict *ret_verdicts, struct err *err)
{
	struct rules_part *part;
	size_t asked = 0;

	make_room(shared, count, count * list->count);
	part = shared->parts;
	for (size_t i = 0; i < count; i++) {
		struct rules_question *question = &shared->questions[asked];
		ask_about_message(shared, list, &messages[i], now_ms, part, question);
		part += question->count;
		/* A message without a key passes, and costs no server anything. */
		asked += question->count > 0;
		ret_verdicts[i] =
		    (struct outbox_rules_verdict){.rule = question->count > 0 ? 0 : -1};
	}
	if (asked && !shared->type->judge(shared->store, shared->questions, asked, err))
		return false;

	for (size_t i = 0, next = 0; i < count; i++)
		if (ret_verdicts[i].rule == 0)
			judge_question(list, &shared->questions[next++], &ret_verdicts[i]);
	return true;
}
