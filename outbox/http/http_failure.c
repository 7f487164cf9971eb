#include "http_private.h"

#include <openssl/x509_vfy.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
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
    {CURLE_SSL_PINNEDPUBKEYNOTMATCH, "tls", "tls"},
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

/* A peer that refuses our certificate by TLS 1.3 does so when the handshake is over on our side. */
static bool is_shut_after_handshake(const struct exchange *exchange)
{
	char *scheme = NULL;
	long connections = 0;

	curl_easy_getinfo(exchange->easy, CURLINFO_SCHEME, &scheme);
	curl_easy_getinfo(exchange->easy, CURLINFO_NUM_CONNECTS, &connections);
	return text_equal(exchange->response.failure, "closed") && connections > 0 && scheme &&
	       strcasecmp(scheme, "https") == 0 && http_exchange_received(exchange) == 0;
}

/* The authority is not trusted, or the chain to it is not whole. */
static bool is_authority_unknown(long verified)
{
	return verified == X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT ||
	       verified == X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY ||
	       verified == X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE ||
	       verified == X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT ||
	       verified == X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN;
}

/* The cure of a failure by a certificate; NULL: the failure has another reason. The caller frees.
 */
static char *certificate_cure(const struct exchange *exchange, CURLcode code, const char *what)
{
	static const char client[] = "correct tls_certificate and tls_key";
	long verified = X509_V_OK;

	curl_easy_getinfo(exchange->easy, CURLINFO_SSL_VERIFYRESULT, &verified);
	if (code == CURLE_SSL_CERTPROBLEM)
		return xstrdup(client);
	if (code == CURLE_SSL_PINNEDPUBKEYNOTMATCH)
		return xformat("it has to show the certificate in %.200s", exchange->pinned_file);
	if (code == CURLE_SSL_CACERT_BADFILE)
		return xformat("correct %s", exchange->ca_key);
	if (code == CURLE_PEER_FAILED_VERIFICATION && is_authority_unknown(verified))
		return xformat("set %s to its certificate authority", exchange->ca_key);
	if (code == CURLE_PEER_FAILED_VERIFICATION && strstr(what, "subject"))
		return xstrdup("write the URL with a name that its certificate has");
	if (code == CURLE_PEER_FAILED_VERIFICATION)
		return xstrdup("give the peer a valid certificate, or correct a wrong clock");
	if (is_shut_after_handshake(exchange) ||
	    (strstr(what, "alert") && !strstr(what, "protocol version")))
		return xformat("if the peer wants a client certificate, %s", client);
	return NULL;
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
	else {
		owned_text char *cure = certificate_cure(exchange, code, what);

		snprintf(response->error, sizeof response->error, "%s: %s%s%s", place, what,
		    cure ? "; " : "", cure ? cure : "");
	}
}
