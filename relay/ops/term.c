#include "term.h"

#include <string.h>
#include "cleanup.h"
#include "hex.h"
#include "producer.h"
#include "text.h"

enum { KEY_BYTES = 8192 };

/* "a..b", "a..", "..b"; "a" alone gives both. False: it is none of these. */
static bool split_range(const char *value, char **ret_from, char **ret_to)
{
	const char *dots = strstr(value, "..");

	*ret_from = xstrdup(value);
	*ret_to = xstrdup(dots ? dots + 2 : value);
	if (dots)
		(*ret_from)[dots - value] = '\0';
	return **ret_from || **ret_to;
}

bool term_ids(const char *value, int64_t *ret_from, int64_t *ret_to, struct err *err)
{
	owned_text char *from = NULL, *to = NULL;

	if (!split_range(value, &from, &to) ||
	    (*from && !text_to_int64(from, 1, INT64_MAX, ret_from)) ||
	    (*to && !text_to_int64(to, 1, INT64_MAX, ret_to)))
		return err_set(err, ERR_REJECT,
		    "ids=%.60s is no range of ids: write ids=10..20, ids=10.., ids=..20 or ids=10",
		    value);
	return *ret_from <= *ret_to ||
	       err_set(err, ERR_REJECT, "ids=%.60s is reversed: the smaller id comes first", value);
}

static bool read_range_end(const char *name, const char *text, int64_t *ret_us, struct err *err)
{
	return !*text || moment_parse(text, ret_us, err) || err_prefix(err, "%s", name);
}

static bool set_range_end(const char *name, const char *text, int64_t us, int64_t now_us,
    char at[MOMENT_SIZE], struct err *err)
{
	if (!*text)
		return true;

	/* most likely a typing error: a first end would select no row, a second restrict none */
	if (us > now_us)
		return err_set(err, ERR_REJECT,
		    "%s: %.40s lies in the future, where no row is; leave the end of the "
		    "range open (%s=2026-01-02..)",
		    name, text, name);
	moment_format_exact(us, at);
	return true;
}

bool term_moments(const char *name, const char *value, int64_t now_us, char from_at[MOMENT_SIZE],
    char to_at[MOMENT_SIZE], bool *ret_empty, struct err *err)
{
	owned_text char *from = NULL, *to = NULL;
	int64_t from_us = INT64_MIN, to_us = INT64_MAX;
	bool empty = false;

	ret_empty = ret_empty ? ret_empty : &empty;
	*ret_empty = false;
	if (!strstr(value, "..") || !split_range(value, &from, &to))
		return err_set(err, ERR_REJECT,
		    "%s=%.60s is no range of moments: write "
		    "%s=2026-01-02..2026-01-03T12:00 (UTC), or leave one end open",
		    name, value, name);
	if (!read_range_end(name, from, &from_us, err) || !read_range_end(name, to, &to_us, err))
		return false;

	*ret_empty = true;
	if (!set_range_end(name, from, from_us, now_us, from_at, err) ||
	    !set_range_end(name, to, to_us, now_us, to_at, err))
		return false;
	*ret_empty = from_us >= to_us;
	return !*ret_empty ||
	       err_set(err, ERR_REJECT,
		   "%s=%.60s is %s: the earlier moment comes first, and the second is not "
		   "part of the range",
		   name, value, from_us == to_us ? "empty" : "reversed");
}

bool term_topic(const char *value, struct err *err)
{
	return producer_topic_is_valid(value) ||
	       err_set(err, ERR_REJECT,
		   "topic=%.60s is no topic's name: 1 to 249 of A-Z a-z 0-9 . _ -", value);
}

static char *hex_of_text(const char *value)
{
	size_t length = strlen(value);
	char *hex = xmalloc(2 + 2 * length + 1);

	*hex_write(stpcpy(hex, "\\x"), value, length) = '\0';
	return hex;
}

static bool is_hex(const char *digits)
{
	size_t length = strspn(digits, "0123456789abcdefABCDEF");

	return !digits[length] && length % 2 == 0;
}

static bool check_key(const char *value, bool hex, struct err *err)
{
	/* "key=" may be a shell variable that is empty, so the empty key has a form of its own */
	if (!*value)
		return err_set(
		    err, ERR_REJECT, "key= names no key: the empty key is written key=\\x");

	if (hex && !is_hex(value + 2))
		return err_set(err, ERR_REJECT,
		    "key=%.60s is not hexadecimal: write two digits for each byte behind \\x",
		    value);
	if ((hex ? (strlen(value) - 2) / 2 : strlen(value)) > KEY_BYTES)
		return err_set(
		    err, ERR_REJECT, "key=%.20s… has more bytes than a key may: 8192", value);
	return true;
}

char *term_key(const char *value, struct err *err)
{
	bool hex = text_starts(value, "\\x");

	if (!check_key(value, hex, err))
		return NULL;
	return hex ? xstrdup(value) : hex_of_text(value);
}
