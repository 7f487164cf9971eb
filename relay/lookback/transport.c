#include "transport_private.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "cleanup.h"
#include "clock.h"
#include "text.h"

const char *const check_words[CHECK_WORDS] = {
    [CHECK_UNKNOWN] = "unknown",
    [CHECK_PENDING] = "pending",
    [CHECK_COMMIT] = "commit",
    [CHECK_ROLLBACK] = "rollback",
};

enum check_word check_word_of(const char *text, size_t length)
{
	for (int i = 0; i < CHECK_WORDS; i++)
		if (strlen(check_words[i]) == length && memcmp(check_words[i], text, length) == 0)
			return (enum check_word)i;
	return CHECK_WORDS;
}

const struct transport_kind *transport_kind_of(enum check_transport transport)
{
	static const struct transport_kind *const kinds[] = {
	    [CHECK_HTTP] = &transport_http,
	    [CHECK_GRPC] = &transport_grpc,
	    [CHECK_SQL] = &transport_sql,
	};

	return kinds[transport];
}

/* --- settings ------------------------------------------------------------------------------- */

bool check_refuse(
    const struct config_check *check, struct err *err, const char *key, const char *format, ...)
{
	char what[sizeof err->message];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(what, sizeof what, format, arguments);
	va_end(arguments);
	return err_set(
	    err, ERR_CONFIG, "%s: [check \"%s\"] %s: %s", check->origin, check->name, key, what);
}

bool check_has_none(const struct config_check *check, const struct check_unfit *settings, int count,
    struct err *err)
{
	for (int i = 0; i < count; i++)
		if (settings[i].value[0])
			return check_refuse(check, err, settings[i].key, "%s", settings[i].why);
	return true;
}

/* --- answers -------------------------------------------------------------------------------- */

void reply_begin(struct reply *reply, const struct check_question *question)
{
	size_t count = (size_t)question->id_count;

	*reply = (struct reply){.question = question, .began_us = clock_us()};
	reply->words = xcalloc(count, sizeof *reply->words);
	reply->said = xmalloc(count);
	memset(reply->said, -1, count);
	reply->answer = (struct check_answer){
	    .opaque = question->opaque, .words = reply->words, .status = -1, .retry_after_ms = -1};
}

void reply_finish(struct reply *reply)
{
	free(reply->words);
	free(reply->said);
}

/* Makes a text fit for the database: it may quote others, and be cut within a character. */
static void make_text_storable(char *text)
{
	uint32_t code;

	while (*text) {
		int length = text_utf8(text, &code);

		if (length == 0 || code < ' ' || code == 0x7f) {
			*text++ = length ? ' ' : '?';
			continue;
		}
		text += length;
	}
}

bool reply_fail(struct reply *reply, const char *failure, const char *format, ...)
{
	struct check_answer *answer = &reply->answer;
	va_list arguments;

	answer->failure = failure;
	va_start(arguments, format);
	vsnprintf(answer->error, sizeof answer->error, format, arguments);
	va_end(arguments);
	make_text_storable(answer->error);
	return false;
}

/* Most services answer in the order of the question. -1: the id was not asked for. */
static int find_asked_id(struct reply *reply, const char *biz_id, size_t length)
{
	const struct check_question *question = reply->question;

	for (int i = 0; i < question->id_count; i++) {
		int at = (reply->next + i) % question->id_count;
		const char *asked = question->ids[at].biz_id;
		if (strlen(asked) == length && memcmp(asked, biz_id, length) == 0) {
			reply->next = (at + 1) % question->id_count;
			return at;
		}
	}
	return -1;
}

bool reply_add(struct reply *reply, const char *biz_id, size_t length, enum check_word word)
{
	int at = find_asked_id(reply, biz_id, length);

	/* A service that mixes up ids may mix up their outcomes: nothing of it counts. */
	if (at < 0)
		return reply_fail(reply, "answer", "it answers about an id that it was not asked");
	if (reply->said[at] >= 0 && reply->said[at] != (int)word)
		return reply_fail(reply, "answer", "it says two things of %.100s",
		    reply->question->ids[at].biz_id);
	reply->said[at] = (signed char)word;
	return true;
}

void reply_read(struct reply *reply)
{
	const struct check_question *question = reply->question;
	int unclear = 0, first = -1;

	for (int i = question->id_count - 1; i >= 0; i--) {
		if (reply->said[i] >= 0 && reply->said[i] < CHECK_WORDS) {
			reply->words[i] = (enum check_word)reply->said[i];
			continue;
		}
		unclear++;
		first = i;
	}
	if (!unclear)
		return;
	owned_text char *others = xformat(" and nothing clear of %d others", unclear - 1);
	reply_fail(reply, unclear == question->id_count ? "answer" : NULL, "it says %s of %.100s%s",
	    reply->said[first] < 0 ? "nothing" : "none of commit, rollback, unknown and pending",
	    question->ids[first].biz_id, unclear > 1 ? others : "");
}
