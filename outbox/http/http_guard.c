#include "http_guard.h"
#include <arpa/inet.h>
#include <ctype.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <curl/curl.h>
#include "cleanup.h"
#include "hex.h"
#include "http_list.h"
#include "text.h"

/*
 * The check of URLs. read_url holds the checks that do not depend on a list, in their order:
 * characters, then the parts as libcurl reads them, then host and port as written, then the path.
 * is_listed looks for the destination that allows the URL. http_destinations_parse reads the
 * configured list with the same checks. Addresses are in http_address.c.
 */

DEFINE_OWNED(CURLU, curl_url_cleanup)

/* The parts of a URL; libcurl owns the texts. */
struct parts {
	char *scheme, *host, *path;
	uint16_t port;
};

static void parts_finish(struct parts *parts)
{
	curl_free(parts->scheme);
	curl_free(parts->host);
	curl_free(parts->path);
}

/*
 * Refuses, before any parser sees the URL, characters that parsers are known to disagree about.
 * Everything outside of visible ASCII must be percent-encoded (a host: in its xn-- form).
 */
static bool characters_are_good(const char *url, struct refusal *ret_refusal)
{
	if (strnlen(url, HTTP_URL_MAX + 1) > HTTP_URL_MAX)
		return refusal_set(
		    ret_refusal, "too_long", "the URL has more than %d bytes", HTTP_URL_MAX);

	for (const char *at = url; *at; at++) {
		if (*at <= ' ' || *at >= 0x7f || *at == '\\')
			return refusal_set(ret_refusal, "characters",
			    "byte %zu of the URL is a control character, a blank, a backslash or "
			    "not ASCII",
			    (size_t)(at - url) + 1);
	}
	if (strchr(url, '#'))
		return refusal_set(ret_refusal, "fragment", "the URL has a fragment (\"#\")");
	return true;
}

/*
 * Checks the scheme, "://", host and port. Parsers accept fewer and more slashes, and read numbers
 * as addresses (127.1, 0x7f.1, 2130706433); so the URL must contain the host exactly as libcurl
 * understood it.
 */
static bool authority_is_good(const char *url, const struct parts *parts, struct refusal *why)
{
	const char *host = url + strlen(parts->scheme);
	size_t length = strlen(parts->host);

	if (!text_starts(host, "://"))
		return refusal_set(
		    why, "malformed", "\"%s://\" and a host come first", parts->scheme);
	host += 3;
	if (strncasecmp(host, parts->host, length) != 0 || !strchr(":/?", host[length]))
		return refusal_set(why, "host",
		    "the host is written in a roundabout way: \"%s\" is the plain one",
		    parts->host);
	/* A name with a final dot is the same host, but would fit no row of the list. */
	if (parts->host[length - 1] == '.')
		return refusal_set(why, "host", "the host \"%s\" ends with a dot", parts->host);
	if (!parts->port || (host[length] == ':' && !isdigit((unsigned char)host[length + 1])))
		return refusal_set(why, "port", "the port is no number from 1 to 65535");
	return true;
}

/* "." and "..", also with parameters behind them ("..;x"), which some servers cut off. */
static bool is_dots(const char *segment, size_t length)
{
	size_t dots = strspn(segment, ".");

	return (dots == 1 || dots == 2) && (dots == length || segment[dots] == ';');
}

/* An encoded one of these means one thing to our prefix check, and maybe another to the server. */
static bool escape_is_bad(const char *escape)
{
	unsigned char byte;

	return !hex_read(escape + 1, 1, &byte) || byte < ' ' || byte == 0x7f ||
	       strchr("./\\%", byte);
}

static bool path_is_good(const char *path, struct refusal *ret_refusal)
{
	for (const char *at = path; *at; at++) {
		if (*at == '/' && is_dots(at + 1, strcspn(at + 1, "/")))
			return refusal_set(
			    ret_refusal, "path", "the path has a \".\" or \"..\" in it");
		if (*at == '%' && escape_is_bad(at))
			return refusal_set(ret_refusal, "path",
			    "the path has an encoded dot, slash, backslash, percent sign or "
			    "control character, or an incomplete encoding");
	}
	return true;
}

static bool parse_failed(CURLUcode code, struct refusal *ret_refusal)
{
	if (code == CURLUE_USER_NOT_ALLOWED)
		return refusal_set(ret_refusal, "credentials", "the URL has credentials (\"@\")");
	if (code == CURLUE_BAD_PORT_NUMBER)
		return refusal_set(ret_refusal, "port", "the port is no number from 1 to 65535");
	if (code == CURLUE_BAD_HOSTNAME || code == CURLUE_BAD_IPV6 || code == CURLUE_NO_HOST)
		return refusal_set(ret_refusal, "host", "the host is not one");
	if (code == CURLUE_UNSUPPORTED_SCHEME)
		return refusal_set(ret_refusal, "scheme", "only http and https are spoken");
	return refusal_set(ret_refusal, "malformed", "not a URL: %s", curl_url_strerror(code));
}

static CURLUcode split_url(const char *url, struct parts *ret_parts)
{
	const unsigned flags = CURLU_DISALLOW_USER | CURLU_PATH_AS_IS | CURLU_NON_SUPPORT_SCHEME;
	OWNED(owned_curl_url_cleanup) CURLU *parsed = curl_url();
	char *port = NULL;
	CURLUcode code;

	if (!parsed)
		return CURLUE_OUT_OF_MEMORY;
	code = curl_url_set(parsed, CURLUPART_URL, url, flags);
	if (!code)
		code = curl_url_get(parsed, CURLUPART_SCHEME, &ret_parts->scheme, 0);
	/* Checked here, as CURLU_NON_SUPPORT_SCHEME lets every scheme pass. */
	if (!code && strcmp(ret_parts->scheme, "http") != 0 &&
	    strcmp(ret_parts->scheme, "https") != 0)
		code = CURLUE_UNSUPPORTED_SCHEME;
	if (!code)
		code = curl_url_get(parsed, CURLUPART_HOST, &ret_parts->host, 0);
	if (!code)
		code = curl_url_get(parsed, CURLUPART_PATH, &ret_parts->path, 0);
	if (!code)
		code = curl_url_get(parsed, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT);
	if (!code)
		ret_parts->port = (uint16_t)strtoul(port, NULL, 10);
	curl_free(port);
	return code;
}

/*
 * Refuses what every list would refuse. Fills *ret_parts as far as the URL could be read; the
 * caller finishes it.
 */
static bool read_url(const char *url, struct parts *ret_parts, struct refusal *ret_refusal)
{
	CURLUcode code;

	if (!characters_are_good(url, ret_refusal))
		return false;
	code = split_url(url, ret_parts);
	if (code)
		return parse_failed(code, ret_refusal);
	return authority_is_good(url, ret_parts, ret_refusal) &&
	       path_is_good(ret_parts->path, ret_refusal);
}

static bool host_fits(const struct http_destination *row, const char *host)
{
	size_t length = strlen(host), own = strlen(row->host);

	if (!row->below)
		return strcasecmp(host, row->host) == 0;
	return length > own + 1 && host[length - own - 1] == '.' && host[0] != '.' &&
	       strcasecmp(host + length - own, row->host) == 0;
}

static bool path_fits(const char *prefix, const char *path)
{
	size_t length = strlen(prefix);

	if (!text_starts(path, prefix))
		return false;
	return prefix[length - 1] == '/' || !path[length] || path[length] == '/';
}

static bool is_listed(
    const struct http_destinations *list, const struct parts *parts, struct refusal *ret_refusal)
{
	bool near = false;

	for (size_t i = 0; i < list->count; i++) {
		const struct http_destination *row = &list->rows[i];
		if (strcmp(row->scheme, parts->scheme) != 0 || row->port != parts->port ||
		    !host_fits(row, parts->host))
			continue;
		if (path_fits(row->path, parts->path))
			return true;
		/* The message then blames the path, and not the host. */
		near = true;
	}
	return refusal_set(ret_refusal, "not_listed", "%s%s://%.200s:%d is not listed",
	    near ? "the path on " : "", parts->scheme, parts->host, parts->port);
}

bool http_guard_url(
    const struct http_destinations *list, const char *url, struct refusal *ret_refusal)
{
	OWNED(parts_finish) struct parts parts = {0};

	return read_url(url, &parts, ret_refusal) && is_listed(list, &parts, ret_refusal);
}

bool http_guard_form(const char *url, struct refusal *ret_refusal)
{
	OWNED(parts_finish) struct parts parts = {0};

	return read_url(url, &parts, ret_refusal);
}

/* Removes the "*." before the host, since a URL cannot have it. Returns whether there was one. */
static bool cut_star(char *url)
{
	char *star = strstr(url, "://*.");

	if (!star)
		return false;
	memmove(star + 3, star + 5, strlen(star + 5) + 1);
	return true;
}

static bool is_address(const char *host)
{
	unsigned char bytes[16];

	return host[0] == '[' || inet_pton(AF_INET, host, bytes) == 1;
}

static bool destination_parse(char *url, struct http_destination *ret_row, struct err *err)
{
	OWNED(parts_finish) struct parts parts = {0};
	struct refusal refusal;
	bool below = cut_star(url);

	if (!read_url(url, &parts, &refusal))
		return err_set(err, ERR_CONFIG, "%s", refusal.text);
	if (strchr(url, '?'))
		return err_set(err, ERR_CONFIG, "a destination has no query (\"?\")");
	/* No host lies below an address. */
	if (below && is_address(parts.host))
		return err_set(err, ERR_CONFIG, "\"*.\" is for names, not for addresses");
	for (char *at = parts.host; *at; at++)
		*at = (char)tolower((unsigned char)*at);
	*ret_row = (struct http_destination){
	    xstrdup(parts.scheme), xstrdup(parts.host), below, parts.port, xstrdup(parts.path)};
	return true;
}

bool http_destinations_parse(const char *text, struct http_destinations *ret_list, struct err *err)
{
	struct http_destinations list = {0};

	for (;;) {
		struct http_destination row;
		owned_text char *entry = http_list_next(&text);
		owned_text char *shown = xstrdup(entry);
		if (!entry)
			break;
		if (strchr(shown, '@')) /* it may contain a password */
			text_copy(shown, strlen(shown) + 1, "…");
		if (!destination_parse(entry, &row, err)) {
			err_prefix(err, "destination %zu, \"%s\"", list.count + 1, shown);
			http_destinations_finish(&list);
			return false;
		}
		list.rows = xrealloc(list.rows, (list.count + 1) * sizeof *list.rows);
		list.rows[list.count++] = row;
	}
	*ret_list = list;
	return true;
}

void http_destinations_finish(struct http_destinations *list)
{
	for (size_t i = 0; i < list->count; i++) {
		free(list->rows[i].scheme);
		free(list->rows[i].host);
		free(list->rows[i].path);
	}
	free(list->rows);
	*list = (struct http_destinations){0};
}
