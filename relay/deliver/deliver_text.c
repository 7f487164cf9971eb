#include "deliver_text.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include "text.h"

#define ALPHANUMERICS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

static const char digits[] = "0123456789";

/* --- times ---------------------------------------------------------------------------------- */

/* The end of a text that has digits where the form has a 9; NULL: it has another form. */
static const char *match_form(const char *at, const char *form)
{
	for (; *form; at++, form++)
		if (*form == '9' ? !isdigit((unsigned char)*at) : *at != *form)
			return NULL;
	return at;
}

static int two_digits(const char *at)
{
	return (at[0] - '0') * 10 + at[1] - '0';
}

/* "Z", or hours and minutes, which are to be taken from the time for UTC. */
static bool read_time_zone(const char *at, int *ret_seconds)
{
	const char *end = *at == '+' || *at == '-' ? match_form(at + 1, "99:99") : NULL;

	*ret_seconds = 0;
	if (text_equal(at, "Z"))
		return true;
	if (!end || *end || two_digits(at + 1) > 23 || two_digits(at + 4) > 59)
		return false;
	*ret_seconds = two_digits(at + 1) * 3600 + two_digits(at + 4) * 60;
	if (*at == '-')
		*ret_seconds = -*ret_seconds;
	return true;
}

bool deliver_text_is_time(const char *text)
{
	static const int64_t first = INT64_C(-62135596800), last = INT64_C(253402300799);
	const char *at = match_form(text, "9999-99-99T99:99:99");
	struct tm parts = {0};
	int zone;

	if (!at || strptime(text, "%Y-%m-%dT%T", &parts) != at || parts.tm_sec > 59)
		return false;

	int day = parts.tm_mday;
	int64_t seconds = timegm(&parts); /* turns the 30th of February into a day of March */
	size_t fraction = *at == '.' ? strspn(at + 1, digits) : 0;

	if (parts.tm_mday != day || !read_time_zone(fraction ? at + 1 + fraction : at, &zone))
		return false;
	return seconds - zone >= first && seconds - zone <= last;
}

/* --- URIs ----------------------------------------------------------------------------------- */

#define HOST_CHARACTERS ALPHANUMERICS "-._~!$&'()*+,;="

/* Those that stand for themselves anywhere, %XX, and `more`. */
static const char *skip_uri_characters(const char *at, const char *more)
{
	for (;;) {
		if (*at == '%' && isxdigit((unsigned char)at[1]) && isxdigit((unsigned char)at[2]))
			at += 3;
		else if (*at && (strchr(HOST_CHARACTERS, *at) || strchr(more, *at)))
			at++;
		else
			return at;
	}
}

static size_t scheme_length(const char *text)
{
	size_t length = strspn(text, ALPHANUMERICS "+-.");

	return isalpha((unsigned char)*text) && text[length] == ':' ? length + 1 : 0;
}

/* Behind "[": the end of "address]"; NULL: it is none. */
static const char *skip_address_of_6(const char *at)
{
	char copy[INET6_ADDRSTRLEN];
	unsigned char address[sizeof(struct in6_addr)];
	size_t length = strcspn(at, "]");

	if (at[length] != ']' || length >= sizeof copy)
		return NULL;
	memcpy(copy, at, length);
	copy[length] = '\0';
	return inet_pton(AF_INET6, copy, address) == 1 ? at + length + 1 : NULL;
}

/* Behind "//": user@host:port. Libraries differ about a host with %XX: it is none here. */
static const char *skip_authority(const char *at)
{
	const char *user_end = skip_uri_characters(at, ":");

	if (*user_end == '@')
		at = user_end + 1;
	at = *at == '[' ? skip_address_of_6(at + 1) : at + strspn(at, HOST_CHARACTERS);
	if (at && *at == ':')
		at += 1 + strspn(at + 1, digits);
	return at && strchr("/?#", *at) ? at : NULL; /* or the end: strchr finds the NUL */
}

bool deliver_text_is_uri_reference(const char *text)
{
	const char *at = text + scheme_length(text);

	if (text_starts(at, "//")) {
		at = skip_authority(at + 2);
		if (!at)
			return false;
	} else if (at == text && at[strcspn(at, ":/?#")] == ':') {
		return false; /* a colon here would end a scheme, and no scheme begins so */
	}
	at = skip_uri_characters(at, ":@/");
	if (*at == '?')
		at = skip_uri_characters(at + 1, ":@/?");
	if (*at == '#')
		at = skip_uri_characters(at + 1, ":@/?");
	return !*at;
}

bool deliver_text_is_uri(const char *text)
{
	return scheme_length(text) && deliver_text_is_uri_reference(text);
}

/* --- media types ---------------------------------------------------------------------------- */

/* RFC 9110; NULL: there is none. */
static const char *skip_token(const char *at)
{
	size_t length = strspn(at, ALPHANUMERICS "!#$%&'*+-.^_`|~");

	return length ? at + length : NULL;
}

/* A token, or a text in double quotes. */
static const char *skip_parameter_value(const char *at)
{
	if (*at != '"')
		return skip_token(at);
	for (at++; *at && *at != '"'; at++)
		if (*at == '\\' && at[1])
			at++;
	return *at ? at + 1 : NULL;
}

static const char *skip_blanks(const char *at)
{
	return at + strspn(at, " \t");
}

bool deliver_text_is_media_type(const char *text)
{
	const char *at = skip_token(text);

	at = at && *at == '/' ? skip_token(at + 1) : NULL;
	while (at && *(at = skip_blanks(at)) == ';') {
		at = skip_blanks(at + 1);
		if (!*at)
			break;
		at = skip_token(at);
		at = at && *at == '=' ? skip_parameter_value(at + 1) : NULL;
	}
	return at && !*at;
}
