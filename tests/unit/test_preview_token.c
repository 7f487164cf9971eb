#include "preview_token.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "cleanup.h"
#include "text.h"

static const unsigned char key[PREVIEW_KEY] = "a key of 32 bytes, 32 of them..";
static const struct preview made = {
    "retry", "main", "{\"state\":\"dead\"}", 1600, 5000000, 7, "10:20:10,15"};

/* "": the token is good. */
static const char *check(const unsigned char *with, const char *token, const struct preview *asked,
    int64_t now, struct preview *ret)
{
	static struct refusal refusal;

	*ret = (struct preview){asked->verb, asked->publisher, asked->selection, 0, 0, 0, ""};
	return preview_token_check(with, token, ret, now, &refusal) ? "" : refusal.code;
}

static void test_a_token_says_what_was_counted(void **state)
{
	char token[PREVIEW_TOKEN_SIZE];
	struct preview found;

	(void)state;
	preview_token_write(key, &made, token);
	assert_string_equal(check(key, token, &made, 1000, &found), "");
	assert_int_equal(found.count, 7);
	assert_int_equal(found.at_us, 5000000);
	assert_int_equal(found.until_s, 1600);
	assert_string_equal(found.seen, "10:20:10,15");
}

static void test_the_longest_token_fits(void **state)
{
	struct preview longest = made, found;
	char token[PREVIEW_TOKEN_SIZE];

	(void)state;
	longest.until_s = longest.at_us = longest.count = INT64_MAX;
	memset(longest.seen, '7', PREVIEW_SEEN - 1);
	longest.seen[PREVIEW_SEEN - 1] = '\0';
	preview_token_write(key, &longest, token);
	assert_string_equal(check(key, token, &longest, 1000, &found), "");
	assert_int_equal(found.count, INT64_MAX);
	assert_string_equal(found.seen, longest.seen);
}

static void test_a_long_snapshot_is_cut_to_what_is_certainly_seen(void **state)
{
	char snapshot[PREVIEW_SEEN + 100] = "17:99:";
	struct preview preview = made;

	(void)state;
	preview_note_snapshot(&preview, "17:99:18,19");
	assert_string_equal(preview.seen, "17:99:18,19");
	memset(snapshot + 6, '1', PREVIEW_SEEN);
	preview_note_snapshot(&preview, snapshot);
	assert_string_equal(preview.seen, "17:17:");
}

static void test_a_token_expires(void **state)
{
	char token[PREVIEW_TOKEN_SIZE];
	struct preview found;

	(void)state;
	preview_token_write(key, &made, token);
	assert_string_equal(check(key, token, &made, 1599, &found), "");
	assert_string_equal(check(key, token, &made, 1600, &found), "token_expired");
}

static void test_a_token_is_for_one_verb_publisher_and_selection(void **state)
{
	static const struct preview others[] = {
	    {"skip", "main", "{\"state\":\"dead\"}", 0, 0, 0, ""},
	    {"retry", "other", "{\"state\":\"dead\"}", 0, 0, 0, ""},
	    {"retry", "main", "{\"state\":\"free\"}", 0, 0, 0, ""},
	    {"retry", "main", "{}", 0, 0, 0, ""},
	    {"retry\nmain", "", "{\"state\":\"dead\"}", 0, 0, 0, ""}};
	char token[PREVIEW_TOKEN_SIZE];
	struct preview found;

	(void)state;
	preview_token_write(key, &made, token);
	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		assert_string_equal(check(key, token, &others[i], 1000, &found), "bad_token");
}

/* Every change of one character, every beginning, and some that were never tokens. */
static void test_a_forged_token_is_refused(void **state)
{
	static const char *const forged[] = {"", ".", "...", "1.2.3.", "x", "1600.5000000.7",
	    "99999999999999999999.1.1.0", "-1.1.1.0", "1600.5000000.7.00",
	    "1600.5000000.7.10:20:10,15", "1600.5000000.7.10:20:10,15.00", "1600.5000000.7.x.00",
	    "ü.1.1.1"};
	char token[PREVIEW_TOKEN_SIZE], changed[PREVIEW_TOKEN_SIZE];
	struct preview found;

	(void)state;
	for (size_t i = 0; i < sizeof forged / sizeof *forged; i++)
		assert_string_equal(check(key, forged[i], &made, 1000, &found), "bad_token");

	preview_token_write(key, &made, token);
	for (size_t i = 0; i < strlen(token); i++) {
		text_copy(changed, sizeof changed, token);
		changed[i] = (char)(changed[i] ^ 1);
		assert_string_equal(check(key, changed, &made, 1000, &found), "bad_token");
		text_copy(changed, sizeof changed, token);
		changed[i] = '\0';
		assert_string_equal(check(key, changed, &made, 1000, &found), "bad_token");
	}
	assert_string_equal(check((const unsigned char *)"another key of 32 bytes, of them", token,
				&made, 1000, &found),
	    "bad_token");
}

/* --- the key --------------------------------------------------------------------------------- */

static void key_of(const char *read, const char *operate, unsigned char ret[PREVIEW_KEY])
{
	owned_text char *ini = xformat("[api]\nlisten = 1\n"
				       "[token \"a\"]\nroles = read\ntokens = %s\n"
				       "[token \"b\"]\nroles = operate\ntokens = %s\n",
	    read, operate);
	char *const environ_list[] = {NULL};
	struct err err;
	struct config *config = config_parse("test.ini", ini, environ_list, &err);

	if (!config)
		fail_msg("%s", err.message);
	preview_key(config, ret);
	config_destroy(config);
}

static void test_processes_with_the_same_tokens_have_the_same_key(void **state)
{
	unsigned char one[PREVIEW_KEY], other[PREVIEW_KEY];

	(void)state;
	key_of("0123456789abcdef, fedcba9876543210", "aaaaaaaaaaaaaaaa", one);
	key_of("fedcba9876543210,0123456789abcdef", "aaaaaaaaaaaaaaaa", other);
	assert_memory_equal(one, other, PREVIEW_KEY);
	key_of("0123456789abcdef, fedcba9876543210", "aaaaaaaaaaaaaaab", other);
	assert_memory_not_equal(one, other, PREVIEW_KEY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_a_token_says_what_was_counted),
	    cmocka_unit_test(test_the_longest_token_fits),
	    cmocka_unit_test(test_a_long_snapshot_is_cut_to_what_is_certainly_seen),
	    cmocka_unit_test(test_a_token_expires),
	    cmocka_unit_test(test_a_token_is_for_one_verb_publisher_and_selection),
	    cmocka_unit_test(test_a_forged_token_is_refused),
	    cmocka_unit_test(test_processes_with_the_same_tokens_have_the_same_key),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
