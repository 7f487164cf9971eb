#include "request_head.h"

#include <string.h>
#include <strings.h>

static bool refuse_head(const char **ret_why, const char *why)
{
	*ret_why = why;
	return false;
}

/* --- the end of the head ---------------------------------------------------------------------- */

/* Why the byte at this place is refused; NULL: it is fine. */
static const char *wrong_at(const char *bytes, size_t place)
{
	unsigned char byte = (unsigned char)bytes[place];
	bool behind_cr = place > 0 && bytes[place - 1] == '\r';

	if (byte == '\n')
		return behind_cr ? NULL : "a line ends with LF alone";
	if (behind_cr)
		return "a CR has no LF behind it";
	if (byte == '\0')
		return "the head holds a NUL";
	if ((byte < ' ' && byte != '\t' && byte != '\r') || byte == 127)
		return "the head holds a control character";
	return NULL;
}

ssize_t request_head_span(const char *bytes, size_t length, size_t *scanned, const char **ret_why)
{
	for (size_t i = *scanned; i < length; i++) {
		const char *why = wrong_at(bytes, i);

		if (why)
			return refuse_head(ret_why, why) - 1;
		if (bytes[i] == '\n' && i == 1)
			return refuse_head(ret_why, "the request begins with an empty line") - 1;

		/* i is 2 or more: an LF at 0 has no CR before it, and one at 1 is refused. */
		if (bytes[i] == '\n' && bytes[i - 2] == '\n')
			return (ssize_t)i + 1;
	}
	*scanned = length;
	return 0;
}

/* --- the first line --------------------------------------------------------------------------- */

static bool is_token(const char *text)
{
	size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				     "0123456789!#$%&'*+-.^_`|~");

	return length > 0 && text[length] == '\0';
}

static int hex_digit(char digit)
{
	if (digit >= '0' && digit <= '9')
		return digit - '0';
	if (digit >= 'a' && digit <= 'f')
		return digit - 'a' + 10;
	return digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 : -1;
}

/* A path with %00 would end there for every program that decodes it. */
static bool is_encoded_well(const char *target)
{
	for (const char *at = strchr(target, '%'); at; at = strchr(at + 1, '%')) {
		int high = hex_digit(at[1]), low = high < 0 ? -1 : hex_digit(at[2]);

		if (low < 0 || (high == 0 && low == 0))
			return false;
	}
	return true;
}

static bool check_target(const char *target, const char **ret_why)
{
	/* Printable ASCII; other characters have to be encoded. */
	for (const char *at = target; *at; at++)
		if (*at <= ' ' || *at >= 127 || *at == '#')
			return refuse_head(
			    ret_why, "the path holds a character that is not encoded");
	if (*target != '/')
		return refuse_head(ret_why, "the path does not begin with a slash");
	return is_encoded_well(target) || refuse_head(ret_why, "the path is not encoded well");
}

static bool check_first_line(char *line, bool *ret_is_new, const char **ret_why)
{
	char *target = strchr(line, ' '), *version = target ? strchr(target + 1, ' ') : NULL;

	if (!version)
		return refuse_head(ret_why, "the first line is not METHOD PATH HTTP/1.1");
	*target++ = '\0';
	*version++ = '\0';
	*ret_is_new = text_equal(version, "HTTP/1.1");
	if (!is_token(line))
		return refuse_head(ret_why, "the first line is not METHOD PATH HTTP/1.1");
	if (!*ret_is_new && !text_equal(version, "HTTP/1.0"))
		return refuse_head(ret_why, "the version is neither HTTP/1.1 nor HTTP/1.0");
	return check_target(target, ret_why);
}

/* --- the fields ------------------------------------------------------------------------------- */

/* A field that decides how the request is read, and which may be there once. */
struct once {
	const char *name;
	char *value; /* NULL: it is not there */
	const char *twice;
};
enum { HOST, LENGTH, CODING, ONCE };

static bool parse_field(char *line, struct once *fields, const char **ret_why)
{
	char *colon = strchr(line, ':'), *end;

	/* First, since a folded line need not have a colon. */
	if (*line == ' ' || *line == '\t')
		return refuse_head(ret_why, "a field is folded over two lines");
	if (!colon)
		return refuse_head(ret_why, "a field has no colon");

	*colon++ = '\0';
	if (!is_token(line))
		return refuse_head(ret_why,
		    "the name of a field holds a blank or another character "
		    "that no name has");

	for (int i = 0; i < ONCE; i++) {
		if (strcasecmp(line, fields[i].name) != 0)
			continue;
		/* Two readers might choose different ones. */
		if (fields[i].value)
			return refuse_head(ret_why, fields[i].twice);
		fields[i].value = colon + strspn(colon, " \t");
		for (end = colon + strlen(colon); end > fields[i].value && strchr(" \t", end[-1]);)
			*--end = '\0';
	}
	return true;
}

/* The value points into the bytes that are parsed, so that the port may be cut off there. */
static bool parse_host(char *host, struct request_head *head, const char **ret_why)
{
	char *port;
	int64_t number;

	if (!host)
		return refuse_head(ret_why, "the head has no Host field");
	port = *host == '[' ? strchr(++host, ']') : host + strcspn(host, ":");
	if (port && *port == ']')
		*port++ = '\0';
	if (!port || (*port && (*port != ':' || !text_to_int64(port + 1, 0, 65535, &number))))
		return refuse_head(ret_why, "Host is no name or address");
	*port = '\0';
	if (host[strspn(
		host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:")] ||
	    *host == '\0')
		return refuse_head(ret_why, "Host is no name or address");
	head->host = host;
	return true;
}

static bool check_body_length(
    const struct once *fields, bool is_new, struct request_head *head, const char **ret_why)
{
	const char *length = fields[LENGTH].value, *coding = fields[CODING].value;
	int64_t bytes = 0;

	/* Request smuggling: one reader goes by the length, the other by the coding. */
	if (length && coding)
		return refuse_head(ret_why, "the head has Content-Length and Transfer-Encoding");
	if (length && (length[strspn(length, "0123456789")] != '\0' ||
			  !text_to_int64(length, 0, INT64_MAX, &bytes)))
		return refuse_head(ret_why, "Content-Length is no number");
	if (coding && !is_new)
		return refuse_head(ret_why, "HTTP/1.0 has no Transfer-Encoding");
	if (coding && strcasecmp(coding, "chunked") != 0)
		return refuse_head(ret_why, "Transfer-Encoding is not chunked");
	head->has_body = coding || bytes > 0;
	return true;
}

/* --- all of it -------------------------------------------------------------------------------- */

/* The next line, with its CR LF made to NUL; NULL: none is left. */
static char *next_head_line(char **at, const char *end)
{
	char *line = *at, *lf = line < end ? memchr(line, '\n', (size_t)(end - line)) : NULL;

	if (!lf)
		return NULL;
	lf[-1] = '\0';
	*at = lf + 1;
	return line;
}

bool request_head_parse(char *bytes, size_t length, struct request_head *head, const char **ret_why)
{
	struct once fields[ONCE] = {[HOST] = {"Host", NULL, "the head has two Host fields"},
	    [LENGTH] = {"Content-Length", NULL, "the head has two Content-Length fields"},
	    [CODING] = {"Transfer-Encoding", NULL, "the head has two Transfer-Encoding fields"}};
	char *at = bytes, *end = bytes + length - 2, *line = next_head_line(&at, end);
	bool is_new;

	*head = (struct request_head){0};
	if (!line || !check_first_line(line, &is_new, ret_why))
		return line ? false : refuse_head(ret_why, "the first line is empty");
	for (int count = 0; (line = next_head_line(&at, end)); count++) {
		if (count == REQUEST_FIELDS)
			return refuse_head(ret_why, "the head has too many fields");
		if (!parse_field(line, fields, ret_why))
			return false;
	}
	return parse_host(fields[HOST].value, head, ret_why) &&
	       check_body_length(fields, is_new, head, ret_why);
}
