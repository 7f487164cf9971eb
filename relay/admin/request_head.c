#include "request_head.h"

#include <string.h>
#include <strings.h>

static bool refuse(const char **ret_why, const char *why)
{
	*ret_why = why;
	return false;
}

/* --- the end of the head ---------------------------------------------------------------------- */

/* What stands at this place and may not; NULL: nothing. */
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
			return refuse(ret_why, why) - 1;
		if (bytes[i] == '\n' && i == 1)
			return refuse(ret_why, "the request begins with an empty line") - 1;
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

/* In place. A text that holds %00 would end there for everybody who reads it. */
static bool decode(char *text, bool plus_is_blank)
{
	char *to = text;

	for (const char *at = text; *at; at++) {
		int high, low;

		if (*at != '%') {
			*to++ = plus_is_blank && *at == '+' ? ' ' : *at;
			continue;
		}
		high = hex_digit(at[1]);
		low = high < 0 ? -1 : hex_digit(at[2]);
		if (low < 0 || (high == 0 && low == 0))
			return false;
		*to++ = (char)(high << 4 | low);
		at += 2;
	}
	*to = '\0';
	return true;
}

static bool split_arguments(char *query, struct request_head *head, const char **ret_why)
{
	char *next = NULL;

	for (char *at = query; at && *at; at = next) {
		struct request_pair *argument = &head->arguments[head->argument_count];
		char *equals;

		next = strchr(at, '&');
		if (next)
			*next++ = '\0';
		if (*at == '\0')
			continue;
		if (head->argument_count++ == REQUEST_ARGUMENTS)
			return refuse(ret_why, "the URL has too many arguments");
		equals = strchr(at, '=');
		if (equals)
			*equals++ = '\0';
		if (!decode(at, true) || (equals && !decode(equals, true)))
			return refuse(ret_why, "an argument of the URL is not encoded well");
		*argument = (struct request_pair){at, equals ? equals : ""};
	}
	return true;
}

static bool parse_target(char *target, struct request_head *head, const char **ret_why)
{
	char *query = strchr(target, '?');

	/* Printable ASCII; what else there is has to be encoded. */
	for (const char *at = target; *at; at++)
		if (*at <= ' ' || *at >= 127 || *at == '#')
			return refuse(ret_why, "the path holds a character that is not encoded");
	if (*target != '/')
		return refuse(ret_why, "the path does not begin with a slash");
	if (query)
		*query++ = '\0';
	head->path = target;
	return decode(target, false) ? split_arguments(query, head, ret_why)
				     : refuse(ret_why, "the path is not encoded well");
}

static bool parse_first_line(char *line, struct request_head *head, const char **ret_why)
{
	char *target = strchr(line, ' '), *version = target ? strchr(target + 1, ' ') : NULL;

	if (!version)
		return refuse(ret_why, "the first line is not METHOD PATH HTTP/1.1");
	*target++ = '\0';
	*version++ = '\0';
	head->method = line;
	head->keeps_alive = text_equal(version, "HTTP/1.1");
	if (!is_token(line))
		return refuse(ret_why, "the first line is not METHOD PATH HTTP/1.1");
	if (!head->keeps_alive && !text_equal(version, "HTTP/1.0"))
		return refuse(ret_why, "the version is neither HTTP/1.1 nor HTTP/1.0");
	return parse_target(target, head, ret_why);
}

/* --- the fields ------------------------------------------------------------------------------- */

static bool parse_field(char *line, struct request_head *head, const char **ret_why)
{
	char *colon = strchr(line, ':'), *end;

	if (*line == ' ' || *line == '\t')
		return refuse(ret_why, "a field is folded over two lines");
	if (head->field_count == REQUEST_FIELDS)
		return refuse(ret_why, "the head has too many fields");
	if (!colon)
		return refuse(ret_why, "a field has no colon");
	*colon++ = '\0';
	if (!is_token(line))
		return refuse(ret_why, "the name of a field holds a blank or another character "
				       "that no name has");
	colon += strspn(colon, " \t");
	for (end = colon + strlen(colon); end > colon && strchr(" \t", end[-1]);)
		*--end = '\0';
	head->fields[head->field_count++] = (struct request_pair){line, colon};
	return true;
}

static int count_fields(const struct request_head *head, const char *name)
{
	int count = 0;

	for (int i = 0; i < head->field_count; i++)
		count += strcasecmp(head->fields[i].name, name) == 0;
	return count;
}

const char *request_head_field(const struct request_head *head, const char *name)
{
	for (int i = 0; i < head->field_count; i++)
		if (strcasecmp(head->fields[i].name, name) == 0)
			return head->fields[i].value;
	return NULL;
}

const char *request_head_argument(const struct request_head *head, const char *name)
{
	for (int i = 0; i < head->argument_count; i++)
		if (text_equal(head->arguments[i].name, name))
			return head->arguments[i].value;
	return NULL;
}

/* Its value points into the bytes that were parsed, so that the port may be cut off there. */
static bool parse_host(struct request_head *head, const char **ret_why)
{
	char *host = (char *)request_head_field(head, "Host"), *port;
	int64_t number;

	if (count_fields(head, "Host") != 1)
		return refuse(
		    ret_why, host ? "the head has two Host fields" : "the head has no Host field");
	if (*host == '[') {
		port = strchr(++host, ']');
		if (!port)
			return refuse(ret_why, "Host is no name or address");
		*port++ = '\0';
	} else {
		port = host + strcspn(host, ":");
	}
	if (*port && (*port != ':' || !text_to_int64(port + 1, 0, 65535, &number)))
		return refuse(ret_why, "Host is no name or address");
	*port = '\0';
	if (host[strspn(
		host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:")] ||
	    *host == '\0')
		return refuse(ret_why, "Host is no name or address");
	head->host = host;
	return true;
}

static bool parse_length(struct request_head *head, const char **ret_why)
{
	const char *length = request_head_field(head, "Content-Length");
	const char *coding = request_head_field(head, "Transfer-Encoding");
	int count = count_fields(head, "Content-Length");

	if (count > 1)
		return refuse(ret_why, "the head has two Content-Length fields");
	if (length && coding)
		return refuse(ret_why, "the head has Content-Length and Transfer-Encoding");
	if (length && (length[strspn(length, "0123456789")] != '\0' ||
			  !text_to_int64(length, 0, INT64_MAX, &head->length)))
		return refuse(ret_why, "Content-Length is no number");
	if (coding && !head->keeps_alive)
		return refuse(ret_why, "HTTP/1.0 has no Transfer-Encoding");
	if (coding &&
	    (strcasecmp(coding, "chunked") != 0 || count_fields(head, "Transfer-Encoding") > 1))
		return refuse(ret_why, "Transfer-Encoding is not chunked");
	head->has_length = length != NULL;
	head->is_chunked = coding != NULL;
	return true;
}

/* One of the words of a list. */
static bool has_word(const char *list, const char *word)
{
	size_t length;

	for (const char *at = list; *at; at += length) {
		at += strspn(at, ", \t");
		length = strcspn(at, ", \t");
		if (length == strlen(word) && strncasecmp(at, word, length) == 0)
			return true;
	}
	return false;
}

static bool parse_connection(struct request_head *head, const char **ret_why)
{
	const char *expectation = request_head_field(head, "Expect");
	bool is_new = head->keeps_alive;

	for (int i = 0; i < head->field_count; i++) {
		if (strcasecmp(head->fields[i].name, "Connection") != 0)
			continue;
		if (has_word(head->fields[i].value, "close"))
			is_new = false;
	}
	if (expectation && strcasecmp(expectation, "100-continue") != 0)
		return refuse(ret_why, "Expect is not 100-continue");
	head->expects_continue = expectation && head->keeps_alive;
	/* HTTP/1.0 would have to ask for it, which nobody needs. */
	head->keeps_alive = is_new;
	return true;
}

/* --- all of it -------------------------------------------------------------------------------- */

/* The next line, with its CR LF made to NUL; NULL: none is left. */
static char *next_line(char **at, const char *end)
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
	char *at = bytes, *end = bytes + length - 2, *line = next_line(&at, end);

	*head = (struct request_head){0};
	if (!line || !parse_first_line(line, head, ret_why))
		return line ? false : refuse(ret_why, "the first line is empty");
	while ((line = next_line(&at, end)))
		if (!parse_field(line, head, ret_why))
			return false;
	/* The length needs the version that parse_connection goes on to change. */
	return parse_host(head, ret_why) && parse_length(head, ret_why) &&
	       parse_connection(head, ret_why);
}

/* --- chunks ----------------------------------------------------------------------------------- */

enum chunk_state {
	CHUNK_SIZE,
	CHUNK_EXTENSION,
	CHUNK_SIZE_LF,
	CHUNK_DATA,
	CHUNK_DATA_CR,
	CHUNK_DATA_LF,
	CHUNK_END_CR,
	CHUNK_END_LF,
	CHUNK_DONE,
};
enum { SIZE_DIGITS = 8, EXTENSION_BYTES = 256 };

static bool read_size(struct request_chunks *chunks, char byte)
{
	int digit = hex_digit(byte);

	if (digit >= 0) {
		chunks->left = chunks->left * 16 + digit;
		return ++chunks->digits <= SIZE_DIGITS;
	}
	if (chunks->digits == 0 || (byte != '\r' && byte != ';'))
		return false;
	chunks->state = byte == '\r' ? CHUNK_SIZE_LF : CHUNK_EXTENSION;
	chunks->digits = 0;
	return true;
}

static bool read_extension(struct request_chunks *chunks, char byte)
{
	if (byte == '\r')
		chunks->state = CHUNK_SIZE_LF;
	else if ((unsigned char)byte < ' ' || ++chunks->digits > EXTENSION_BYTES)
		return false;
	return true;
}

static bool expect(struct request_chunks *chunks, char byte, char wanted, enum chunk_state next)
{
	chunks->state = (int)next;
	return byte == wanted;
}

/* A byte that is not of the body itself. */
static bool read_frame(struct request_chunks *chunks, char byte)
{
	switch ((enum chunk_state)chunks->state) {
	case CHUNK_SIZE:
		return read_size(chunks, byte);
	case CHUNK_EXTENSION:
		return read_extension(chunks, byte);
	case CHUNK_SIZE_LF:
		return expect(chunks, byte, '\n', chunks->left > 0 ? CHUNK_DATA : CHUNK_END_CR);
	case CHUNK_DATA_CR:
		return expect(chunks, byte, '\r', CHUNK_DATA_LF);
	case CHUNK_DATA_LF:
		chunks->left = chunks->digits = 0;
		return expect(chunks, byte, '\n', CHUNK_SIZE);
	case CHUNK_END_CR:
		return expect(chunks, byte, '\r', CHUNK_END_LF);
	case CHUNK_END_LF:
		return expect(chunks, byte, '\n', CHUNK_DONE);
	case CHUNK_DATA:
	case CHUNK_DONE:
		break;
	}
	return false;
}

int request_chunks_read(struct request_chunks *chunks, const char *bytes, size_t length,
    size_t *ret_taken, const char **ret_data, size_t *ret_length)
{
	size_t i = 0;

	*ret_length = 0;
	*ret_data = bytes;
	while (i < length && chunks->state != CHUNK_DATA && chunks->state != CHUNK_DONE)
		if (!read_frame(chunks, bytes[i++]))
			return -1;
	if (i < length && chunks->state == CHUNK_DATA) {
		size_t part = length - i;

		if ((int64_t)part > chunks->left)
			part = (size_t)chunks->left;
		*ret_data = bytes + i;
		*ret_length = part;
		i += part;
		chunks->left -= (int64_t)part;
		if (chunks->left == 0)
			chunks->state = CHUNK_DATA_CR;
	}
	*ret_taken = i;
	return chunks->state == CHUNK_DONE;
}
