/*
 * Records of rules on a Redis server or cluster. The key NAME:RULE:HASH is a sorted set: its
 * members are the marks of admitted messages, and their scores the times of these messages. A
 * script judges a message by all its rules and records it with all of them or with none. In a
 * cluster a key is NAME:RULE:{USER}:HASH, so that one node has all keys of a message.
 *
 * A set has at most the `most` messages of each interval or day, since refused messages are not
 * added. The script removes members that are too old to matter. The server removes the whole set
 * when its last message has stopped to matter, and `late` and `keep` have passed since the message
 * was recorded.
 *
 * A bare counter would count a message twice that is delivered again after a crash; a set knows it.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "hex.h"
#include "redis_session.h"
#include "rules_store.h"
#include "text.h"

enum { CHUNK = 100 /* messages of one script: it blocks the server for about a millisecond */ };

/*
 * ARGV: the number of messages; for each message its mark, its time and the number of its rules;
 * for each rule: does it refuse, most, oldest, time to live, within, number of pieces, and their
 * first and last time. KEYS: for each message, one for each rule. The answer has a text for each
 * message: "again", or for each rule 1 if it is exceeded, else 0.
 */
static const char script[] =
    "local a, k, out = 1, 0, {} "
    "local function arg() a = a + 1 return ARGV[a] end "
    /* Do `most` neighbours lie with the message in one interval? */
    "local function crowded(key, time, within, most, low, high) "
    "if redis.call('ZCOUNT', key, low, high) < most then return false end "
    "if redis.call('ZCOUNT', key, low, time) >= most then return true end "
    "if redis.call('ZCOUNT', key, time, high) >= most then return true end "
    "local all = redis.call('ZRANGEBYSCORE', key, low, high, 'WITHSCORES') "
    "local now = tonumber(time) "
    "for i = 2, #all - 2 * (most - 1), 2 do "
    "local first, last = tonumber(all[i]), tonumber(all[i + 2 * (most - 1)]) "
    "if math.max(last, now) - math.min(first, now) < within then return true end "
    "end "
    "return false end "
    "local function exceeds(key, time, r) "
    "if r.within > 0 then "
    "return crowded(key, time, r.within, r.most, ARGV[r.at + 1], ARGV[r.at + 2]) end "
    "local count = 0 "
    "for i = 1, r.pieces do "
    "count = count + redis.call('ZCOUNT', key, ARGV[r.at + 2 * i - 1], ARGV[r.at + 2 * i]) end "
    "return count >= r.most end "
    "for m = 1, tonumber(ARGV[1]) do "
    "local mark, time, count = arg(), arg(), tonumber(arg()) "
    "local rules, again, refused, bits = {}, false, false, {} "
    "for i = 1, count do "
    "local r = {refuses = arg(), most = tonumber(arg()), oldest = arg(), live = arg(), "
    "within = tonumber(arg()), pieces = tonumber(arg()), at = a} "
    "a = a + 2 * r.pieces "
    "rules[i] = r "
    "again = again or redis.call('ZSCORE', KEYS[k + i], mark) end "
    "if not again then "
    "for i = 1, count do "
    "local beyond = exceeds(KEYS[k + i], time, rules[i]) "
    "bits[i] = beyond and '1' or '0' "
    "refused = refused or (beyond and rules[i].refuses == '1') end end "
    "if not refused then "
    "for i = 1, count do "
    "local key, r = KEYS[k + i], rules[i] "
    "redis.call('ZADD', key, 'NX', time, mark) "
    "redis.call('ZREMRANGEBYSCORE', key, '-inf', '(' .. r.oldest) "
    "if redis.call('PTTL', key) < tonumber(r.live) then redis.call('PEXPIRE', key, r.live) end "
    "end end "
    "out[m] = again and 'again' or table.concat(bits) "
    "k = k + count end "
    "return out";

/* A word of a command, in the store's text. */
struct place {
	size_t begin, length;
};

struct rules_store {
	struct redis_session server;
	char *name;
	int64_t keep_ms;
	struct text bytes; /* of the command's words */
	struct place *places;
	struct redis_word *words;
	size_t count, capacity;
};

static void close_redis_rules(struct rules_store *store)
{
	redis_session_finish(&store->server);
	text_finish(&store->bytes);
	free(store->places);
	free(store->words);
	free(store->name);
	free(store);
}

static struct rules_store *open_redis_rules(const struct rules_store_spec *spec, struct err *err)
{
	struct rules_store *store = xcalloc(1, sizeof *store);
	store->name = xstrdup(spec->name);
	store->keep_ms = spec->keep_ms;
	/* The name: a server that lost its data would begin all counts anew, unnoticed. */
	if (redis_session_init(
		&store->server, &spec->server, (int)spec->timeout_ms, spec->name, err) &&
	    redis_session_begin(&store->server, err))
		return store;
	close_redis_rules(store);
	return NULL;
}

/* One node must have all keys of a script. The user's hash chooses the node. */
static bool redis_rules_need_user(const struct rules_store *store)
{
	return redis_session_is_cluster(&store->server);
}

/* --- a command ------------------------------------------------------------------------------ */

static void begin_command(struct rules_store *store)
{
	text_clear(&store->bytes);
	store->count = 0;
}

/* Adds the word that ends the bytes and begins there. */
static void end_script_word(struct rules_store *store, size_t begin)
{
	if (store->count == store->capacity) {
		store->capacity = store->capacity ? 2 * store->capacity : 1024;
		store->places = xrealloc(store->places, store->capacity * sizeof *store->places);
		store->words = xrealloc(store->words, store->capacity * sizeof *store->words);
	}
	store->places[store->count++] = (struct place){begin, store->bytes.length - begin};
}

static void add_script_word(struct rules_store *store, const void *bytes, size_t length)
{
	size_t begin = store->bytes.length;
	text_append(&store->bytes, bytes, length);
	end_script_word(store, begin);
}

static void add_number_word(struct rules_store *store, int64_t number)
{
	char digits[20];
	add_script_word(store, digits, (size_t)(text_write_int64(digits, number) - digits));
}

static void add_hex(struct text *text, const unsigned char *bytes, size_t size)
{
	char digits[2 * RULES_KEY_BYTES];
	text_append(text, digits, (size_t)(hex_write(digits, bytes, size) - digits));
}

static void add_set_key(
    struct rules_store *store, const struct rules_question *question, const struct rules_part *part)
{
	struct text *bytes = &store->bytes;
	size_t begin = bytes->length;

	text_add(bytes, store->name);
	text_add(bytes, ":");
	text_add(bytes, part->rule->name);
	text_add(bytes, ":");
	if (redis_session_is_cluster(&store->server)) {
		text_add(bytes, "{");
		add_hex(bytes, question->tag, sizeof question->tag);
		text_add(bytes, "}:");
	}
	add_hex(bytes, part->key, sizeof part->key);
	end_script_word(store, begin);
}

static void add_part_words(
    struct rules_store *store, const struct rules_question *question, const struct rules_part *part)
{
	const struct rule_span *span = &part->span;

	add_number_word(store, part->rule->action != OUTBOX_RULES_PASS);
	add_number_word(store, part->rule->most);
	add_number_word(store, part->oldest_ms);
	add_number_word(
	    store, span->until_ms - question->time_ms + part->rule->late_ms + store->keep_ms);
	add_number_word(store, span->within_ms);
	add_number_word(store, span->count);
	for (int i = 0; i < span->count; i++) {
		add_number_word(store, span->pieces[i].begin_ms);
		add_number_word(store, span->pieces[i].end_ms - 1);
	}
}

static void add_question_words(struct rules_store *store, const struct rules_question *question)
{
	add_script_word(store, &question->mark, sizeof question->mark);
	add_number_word(store, question->time_ms);
	add_number_word(store, (int64_t)question->count);
	for (size_t i = 0; i < question->count; i++)
		add_part_words(store, question, &question->parts[i]);
}

static void say_script(
    struct rules_store *store, const struct rules_question *questions, size_t count)
{
	size_t keys = 0;

	begin_command(store);
	for (size_t i = 0; i < count; i++)
		keys += questions[i].count;
	add_script_word(store, "EVAL", 4);
	add_script_word(store, script, sizeof script - 1);
	add_number_word(store, (int64_t)keys);
	for (size_t i = 0; i < count; i++)
		for (size_t k = 0; k < questions[i].count; k++)
			add_set_key(store, &questions[i], &questions[i].parts[k]);
	add_number_word(store, (int64_t)count);
	for (size_t i = 0; i < count; i++)
		add_question_words(store, &questions[i]);

	for (size_t i = 0; i < store->count; i++)
		store->words[i] = (struct redis_word){
		    store->bytes.data + store->places[i].begin, store->places[i].length};
	redis_session_say(&store->server, store->words[3], store->words, store->count);
}

/* --- judge ---------------------------------------------------------------------------------- */

struct judging {
	struct rules_question *questions;
	size_t count, chunk; /* chunk: messages of one script */
	bool understood;
};

static bool read_script_verdict(struct rules_question *question, const struct redis_answer *answer)
{
	question->again = answer->kind == REDIS_TEXT && text_equal(answer->text, "again");
	if (question->again)
		return true;
	if (answer->kind != REDIS_TEXT || answer->length != question->count)
		return false;
	for (size_t i = 0; i < question->count; i++)
		question->parts[i].exceeded = answer->text[i] == '1';
	return true;
}

static void see_verdicts(void *context, size_t number, const struct redis_answer *answer)
{
	struct judging *judging = context;
	size_t first = number * judging->chunk;

	for (size_t i = 0; i < judging->chunk && first + i < judging->count; i++) {
		struct redis_answer verdict = {0};
		if (answer->kind == REDIS_LIST && i < answer->count)
			verdict = redis_answer_item(answer, i);
		judging->understood &=
		    read_script_verdict(&judging->questions[first + i], &verdict);
	}
}

static bool judge_in_redis(
    struct rules_store *store, struct rules_question *questions, size_t count, struct err *err)
{
	struct judging judging = {questions, count, CHUNK, true};

	if (!redis_session_begin(&store->server, err))
		return false;
	/* Different nodes may have the messages of a script. */
	if (redis_session_is_cluster(&store->server))
		judging.chunk = 1;
	for (size_t i = 0; i < count; i += judging.chunk)
		say_script(
		    store, &questions[i], count - i < judging.chunk ? count - i : judging.chunk);
	return redis_session_hear(&store->server, see_verdicts, &judging, err) &&
	       (judging.understood ||
		   err_set(err, ERR_RETRY, "%s: the answer of the rules' script is no verdict",
		       store->name));
}

const struct rules_store_type redis_rules = {
    .spec = {"redis", rules_store_settings,
	1 << RULES_URL | 1 << RULES_PASSWORD_FILE | 1 << RULES_TLS_CA | 1 << RULES_TLS_CERTIFICATE |
	    1 << RULES_TLS_KEY | 1 << RULES_SENTINEL_PASSWORD_FILE | 1 << RULES_NAME |
	    1 << RULES_KEEP | 1 << RULES_TIMEOUT,
	1 << RULES_URL | 1 << RULES_NAME},
    .open = open_redis_rules,
    .close = close_redis_rules,
    .needs_user = redis_rules_need_user,
    .judge = judge_in_redis,
};
