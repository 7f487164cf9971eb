/*
 * Gives a request to libcurl: checks it, and sets headers, TLS, protocol and limits of its handle.
 * Begin at http_request_set.
 */
#include "http_private.h"
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/sha.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "cleanup.h"
#include "clock.h"

/* Changed authorities of the system take effect within this time. */
enum { AUTHORITIES_KEPT_S = 300, PIN_BYTES = 128 };

static bool is_plain(const struct http_request *request)
{
	return strncasecmp(request->url, "http:", 5) == 0;
}

/* Without it OpenSSL would ask on the terminal for the password of a file that is no certificate.
 */
static int refuse_pin_password(char *password, int size, int writes, void *context)
{
	(void)password;
	(void)size;
	(void)writes;
	(void)context;
	return -1;
}

/*
 * "sha256//" and the base64 of the SHA-256 of the public key in its ASN.1 form, as libcurl wants it
 * (RFC 7469). False: there is no certificate in the file.
 */
static bool write_pin(const char *path, char *ret_pin, size_t size)
{
	owned_file FILE *file = fopen(path, "re");
	X509 *certificate = file ? PEM_read_X509_AUX(file, NULL, refuse_pin_password, NULL) : NULL;
	unsigned char digest[SHA256_DIGEST_LENGTH], encoded[2 * SHA256_DIGEST_LENGTH];
	unsigned char *key = NULL;
	int length = certificate ? i2d_X509_PUBKEY(X509_get_X509_PUBKEY(certificate), &key) : -1;

	if (length > 0) {
		SHA256(key, (size_t)length, digest);
		EVP_EncodeBlock(encoded, digest, sizeof digest);
		snprintf(ret_pin, size, "sha256//%s", (const char *)encoded);
	}
	OPENSSL_free(key);
	X509_free(certificate);
	return length > 0;
}

static bool check_pinned_file(const struct http_request *request, struct err *err)
{
	const char *path = request->tls ? request->tls->pinned_file : NULL;
	char pin[PIN_BYTES];

	if (!path || is_plain(request) || write_pin(path, pin, sizeof pin))
		return true;
	return http_file_check(path, err) &&
	       err_set(err, ERR_CONFIG, "%.300s holds no certificate in PEM", path);
}

/* Is it a token of RFC 9110? */
static bool name_is_good(const char *name)
{
	static const char allowed[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
				      "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

	return *name && !name[strspn(name, allowed)];
}

static bool value_is_good(const char *value)
{
	for (; *value; value++) {
		if (((unsigned char)*value < ' ' && *value != '\t') || *value == 0x7f)
			return false;
	}
	return true;
}

/* Only libcurl sets the headers that say where the request goes or where it ends. */
static bool name_is_ours(const char *name)
{
	static const char *const names[] = {"host", "content-length", "transfer-encoding",
	    "connection", "proxy-connection", "keep-alive", "upgrade", "expect"};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		if (strcasecmp(name, names[i]) == 0)
			return true;
	}
	return false;
}

const char *http_header_problem(const struct http_header *header)
{
	if (!name_is_good(header->name))
		return "its name is not the name of a header";
	if (!value_is_good(header->value))
		return "its value holds a control character";
	return name_is_ours(header->name) ? "the HTTP client sets it itself" : NULL;
}

bool http_request_check(const struct http_request *request, struct err *err)
{
	const struct http_limits *limits = &request->limits;

	for (size_t i = 0; i < request->header_count; i++) {
		const char *problem = http_header_problem(&request->headers[i]);

		if (problem)
			return err_set(
			    err, ERR_REJECT, "header %zu of the request: %s", i + 1, problem);
	}
	if (limits->timeout_ms < 1 || limits->connect_timeout_ms < 1 || limits->slow_bytes < 0 ||
	    (limits->slow_bytes && limits->slow_ms < 1))
		return err_set(err, ERR_REJECT, "the times of a request are at least 1 ms");
	return check_pinned_file(request, err);
}

/* For libcurl, "Name;" means an empty header and "Name:" means not to send the header. */
static void add_header_line(
    struct exchange *exchange, size_t number, const char *name, const char *mark, const char *value)
{
	struct text *text = &exchange->line_text;
	struct curl_slist *line = &exchange->lines[number];

	*line = (struct curl_slist){.data = text->data + text->length};
	text_add(text, name);
	text_add(text, mark);
	text_append(text, value, strlen(value) + 1);
	if (number)
		line[-1].next = line;
}

/* Reserves room for all lines and two of our own, so that adding a line never moves the others. */
static void reserve_header_lines(struct exchange *exchange, const struct http_request *request)
{
	enum { OWN = 2, OWN_BYTES = 64, MARK_BYTES = 3 };
	size_t count = request->header_count + OWN, bytes = OWN_BYTES;

	for (size_t i = 0; i < request->header_count; i++)
		bytes += strlen(request->headers[i].name) + strlen(request->headers[i].value) +
			 MARK_BYTES;
	if (count > exchange->line_room) {
		exchange->line_room = count;
		exchange->lines = xrealloc(exchange->lines, count * sizeof *exchange->lines);
	}
	text_clear(&exchange->line_text);
	text_reserve(&exchange->line_text, bytes);
}

/* Builds libcurl's list in memory that the exchange keeps for its next requests. */
static bool set_request_headers(struct exchange *exchange, const struct http_request *request)
{
	bool typed = false;
	size_t count = 0;

	reserve_header_lines(exchange, request);
	for (; count < request->header_count; count++) {
		const struct http_header *header = &request->headers[count];
		/* libcurl would drop a header with a blank value. */
		bool blank = !header->value[strspn(header->value, " \t")];

		add_header_line(
		    exchange, count, header->name, blank ? ";" : ": ", blank ? "" : header->value);
		typed |= strcasecmp(header->name, "content-type") == 0;
	}
	/* Otherwise libcurl may add an Expect and a Content-Type of its own. */
	add_header_line(exchange, count++, "Expect", ":", "");
	if (!typed)
		add_header_line(exchange, count, "Content-Type", ":", "");
	return curl_easy_setopt(exchange->easy, CURLOPT_HTTPHEADER, exchange->lines) == CURLE_OK;
}

#define SET(option, value) (good &= curl_easy_setopt(easy, option, value) == CURLE_OK)

/* The file may have gone since it was checked: no peer fits the empty pin. */
static bool set_pinned_key(struct exchange *exchange, const char *path)
{
	CURL *easy = exchange->easy;
	char pin[PIN_BYTES] = "sha256//";
	bool good = true;

	if (path)
		(void)!write_pin(path, pin, sizeof pin);
	SET(CURLOPT_PINNEDPUBLICKEY, path ? pin : NULL);
	SET(CURLOPT_SSL_VERIFYPEER, path ? 0L : 1L);
	SET(CURLOPT_SSL_VERIFYHOST, path ? 0L : 2L);
	return good;
}

/*
 * A configured file of authorities replaces the system's, and is read for each connection, so that
 * it can be changed. libcurl caches authorities only if no folder is set; without the cache it
 * would read the system's hundreds for every connection.
 */
static bool set_request_tls(struct exchange *exchange, const struct http_tls *tls)
{
	static const struct http_tls none;
	const struct http_client *client = exchange->client;
	CURL *easy = exchange->easy;
	const char *file;
	bool good = true;

	if (!tls)
		tls = &none;
	exchange->ca_key = tls->ca_key ? tls->ca_key : "tls_ca";
	exchange->pinned_file = tls->pinned_file;
	file = tls->ca_file ? tls->ca_file : client->ca_file;
	SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	/* With a pin libcurl would read the authorities for nothing. */
	SET(CURLOPT_CAINFO, tls->pinned_file ? NULL : file);
	SET(CURLOPT_CAPATH, file || tls->pinned_file ? NULL : client->ca_path);
	SET(CURLOPT_CA_CACHE_TIMEOUT, tls->ca_file ? 0L : (long)AUTHORITIES_KEPT_S);
	SET(CURLOPT_SSLCERT, tls->certificate_file);
	SET(CURLOPT_SSLKEY, tls->key_file);
	return good && set_pinned_key(exchange, tls->pinned_file);
}

static bool set_method(CURL *easy, const struct http_request *request)
{
	bool good = true;

	if (request->method == HTTP_GET) {
		SET(CURLOPT_HTTPGET, 1L);
		return good;
	}
	SET(CURLOPT_POST, 1L);
	SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body_length);
	SET(CURLOPT_POSTFIELDS, request->body_length ? request->body : "");
	return good;
}

static bool set_limits(CURL *easy, const struct http_limits *limits)
{
	bool good = true;

	SET(CURLOPT_TIMEOUT_MS, (long)limits->timeout_ms);
	SET(CURLOPT_CONNECTTIMEOUT_MS, (long)limits->connect_timeout_ms);
	/* For answers that announce their length. INT64_MAX and more: 0, which means no limit. */
	SET(CURLOPT_MAXFILESIZE_LARGE,
	    limits->max_body < INT64_MAX ? (curl_off_t)limits->max_body : 0);
	return good;
}

/* libcurl does not copy the list, so the exchange keeps it. */
static bool set_connect_to(struct exchange *exchange, const char *connect_to)
{
	if (!connect_to && !exchange->connect_to)
		return true;
	curl_slist_free_all(exchange->connect_to);
	exchange->connect_to = connect_to ? curl_slist_append(NULL, connect_to) : NULL;
	if (connect_to && !exchange->connect_to)
		return false;
	return curl_easy_setopt(exchange->easy, CURLOPT_CONNECT_TO, exchange->connect_to) ==
	       CURLE_OK;
}

/*
 * libcurl before 8.0 loses the framing of HTTP/2 without TLS when a request with prior knowledge of
 * HTTP/2 reuses a connection that speaks it already (curl's pull request 10643). A request that may
 * speak either version does not have this problem; but on a new connection it begins with HTTP/1.1
 * and an upgrade. So a request first may speak either version and only use a kept connection
 * (on_open refuses a new one). If none is kept, it is sent again with prior knowledge, and only on
 * a new connection.
 */
static bool spoils_its_connection(const struct http_request *request)
{
	return request->protocol == HTTP_2 && is_plain(request) &&
	       curl_version_info(CURLVERSION_NOW)->version_num < 0x080000;
}

bool http_request_set(struct exchange *exchange, const struct http_request *request)
{
	CURL *easy = exchange->easy;
	long version = request->protocol == HTTP_2 ? CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE
						   : CURL_HTTP_VERSION_1_1;
	bool good = true;

	exchange->limits = request->limits;
	exchange->shares = request->protocol == HTTP_2;
	exchange->only_kept = spoils_its_connection(request);
	SET(CURLOPT_URL, request->url);
	/* The handle may come from a request that was sent anew. */
	SET(CURLOPT_FRESH_CONNECT, 0L);
	SET(CURLOPT_PIPEWAIT, 1L);
	SET(CURLOPT_HTTP_VERSION, exchange->only_kept ? (long)CURL_HTTP_VERSION_2 : version);
	return good && set_connect_to(exchange, request->connect_to) && set_method(easy, request) &&
	       set_request_headers(exchange, request) &&
	       (is_plain(request) || set_request_tls(exchange, request->tls)) &&
	       set_limits(easy, &request->limits);
}

bool http_request_set_anew(struct exchange *exchange)
{
	const int64_t left_ms = exchange->expires_at - clock_ms();
	CURL *easy = exchange->easy;
	bool good = true;

	exchange->only_kept = exchange->none_kept = false;
	SET(CURLOPT_TIMEOUT_MS, (long)(left_ms > 1 ? left_ms : 1)); /* 0 would mean no limit */
	/* A kept connection may be the one that refused or cut off the request. */
	SET(CURLOPT_FRESH_CONNECT, 1L);
	SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE);
	return good;
}
#undef SET
