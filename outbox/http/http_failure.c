#include "http_private.h"

#include <stdio.h>
#include <string.h>
#include "logging.h"

enum { LOGGED_BYTES = 65536 };

static const struct {
	CURLcode code;
	const char *unsent, *sent; /* the failure before and after the first byte left */
} meanings[] = {
    {CURLE_UNSUPPORTED_PROTOCOL, "url", "garbled"}, /* sent: the answer was HTTP/0.9 */
    {CURLE_URL_MALFORMAT, "url", "garbled"},
    {CURLE_LOGIN_DENIED, "url", "garbled"}, /* credentials in the URL */
    {CURLE_COULDNT_RESOLVE_HOST, "resolve", "resolve"},
    {CURLE_COULDNT_CONNECT, "connect", "connect"},
    {CURLE_SSL_CONNECT_ERROR, "tls", "tls"},
    {CURLE_PEER_FAILED_VERIFICATION, "tls", "tls"},
    {CURLE_SSL_CERTPROBLEM, "tls", "tls"},
    {CURLE_SSL_CIPHER, "tls", "tls"},
    {CURLE_SSL_CACERT_BADFILE, "tls", "tls"},
    {CURLE_SSL_ISSUER_ERROR, "tls", "tls"},
    {CURLE_SSL_INVALIDCERTSTATUS, "tls", "tls"},
    {CURLE_SSL_ENGINE_NOTFOUND, "tls", "tls"},
    {CURLE_SSL_ENGINE_SETFAILED, "tls", "tls"},
    {CURLE_SSL_SHUTDOWN_FAILED, "tls", "tls"},
    {CURLE_FILESIZE_EXCEEDED, "internal", "too_large"},
    {CURLE_OUT_OF_MEMORY, "internal", "headers_too_large"}, /* a line of more than 100 kB */
    {CURLE_WEIRD_SERVER_REPLY, "garbled", "garbled"},
    {CURLE_BAD_CONTENT_ENCODING, "garbled", "garbled"},
    {CURLE_GOT_NOTHING, "closed", "closed"},
    {CURLE_SEND_ERROR, "closed", "closed"},
    {CURLE_RECV_ERROR, "closed", "closed"},
    {CURLE_PARTIAL_FILE, "closed", "closed"},
    {CURLE_HTTP2, "closed", "closed"},
    {CURLE_HTTP2_STREAM, "closed", "closed"},
};

static const char *timeout_meaning(const struct exchange *exchange)
{
	static const char *const unsent[] = {[STAGE_QUEUED] = "queue_timeout",
	    [STAGE_RESOLVING] = "resolve_timeout",
	    [STAGE_CONNECTING] = "connect_timeout",
	    [STAGE_CONNECTED] = "timeout"};

	return exchange->response.sent ? "timeout" : unsent[exchange->stage];
}

static const char *failure_meaning(const struct exchange *exchange, CURLcode code)
{
	bool sent = exchange->response.sent;

	/* libcurl only reports that a callback failed; `given_up` has the reason. */
	if (exchange->given_up)
		return exchange->given_up;
	if (code == CURLE_OPERATION_TIMEDOUT)
		return timeout_meaning(exchange);
	/* An allowed address that was tried and failed is the better explanation. */
	if (code == CURLE_COULDNT_CONNECT && exchange->refused && !exchange->tried)
		return "address_refused";
	for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++) {
		if (meanings[i].code == code)
			return sent ? meanings[i].sent : meanings[i].unsent;
	}
	return sent ? "closed" : "internal";
}

/* "https://host:port", without path and query, as those may hold a secret. The caller frees. */
static char *place_of_url(CURL *easy)
{
	char *url = NULL, *scheme = NULL, *host = NULL, *port = NULL, *place;
	CURLU *parsed = curl_url();

	curl_easy_getinfo(easy, CURLINFO_EFFECTIVE_URL, &url);
	if (parsed && url && curl_url_set(parsed, CURLUPART_URL, url, 0) == CURLUE_OK &&
	    curl_url_get(parsed, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
	    curl_url_get(parsed, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
	    curl_url_get(parsed, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK)
		place = xformat("%s://%.100s:%s", scheme, host, port);
	else
		place = xstrdup("the URL");
	curl_free(scheme);
	curl_free(host);
	curl_free(port);
	curl_url_cleanup(parsed);
	return place;
}

/* Logs each target once. Messages may name any number of targets, so the list is limited. */
static void log_refused_target(struct http_client *client, const char *place, const char *why)
{
	owned_text char *line = xformat("%s\n", place);

	if (client->refused.length > LOGGED_BYTES || strstr(text_string(&client->refused), line))
		return;
	text_add(&client->refused, line);
	log_event(LOG_LEVEL_WARN, "address_refused", {"target", LOG_TEXT(place)},
	    {"address", LOG_TEXT(why)},
	    {"cure", LOG_TEXT("add its address to networks of the section")});
}

void http_failure_tell(struct exchange *exchange, CURLcode code)
{
	struct http_response *response = &exchange->response;
	owned_text char *place = place_of_url(exchange->easy);
	const char *what = *exchange->error ? exchange->error : curl_easy_strerror(code);

	response->failure = failure_meaning(exchange, code);
	if (text_equal(response->failure, "address_refused")) {
		log_refused_target(exchange->client, place, exchange->refused);
		snprintf(response->error, sizeof response->error,
		    "%s: its address is refused (%s); where that is wanted, list its network",
		    place, exchange->refused);
	} else if (text_equal(response->failure, "queue_timeout"))
		snprintf(response->error, sizeof response->error,
		    "%s: no connection was free in time", place);
	else if (exchange->given_up)
		snprintf(response->error, sizeof response->error,
		    "%s: the answer was given up (%s)", place, exchange->given_up);
	else
		snprintf(response->error, sizeof response->error, "%s: %s", place, what);
}
