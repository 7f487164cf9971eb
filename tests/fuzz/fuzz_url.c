/*
 * Any text is a list of destinations, a list of networks and a URL, or each is refused with a
 * reason. Lines: destinations, networks, then URLs. A URL that a list lets through is one that its
 * own text lists as well. A service has a name or addresses, and each gives a URL that the guard
 * reads.
 */
#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "http_guard.h"
#include "service_url.h"
#include "text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void check_url(const struct http_destinations *list, const char *url)
{
	static const char *const codes[] = {"malformed", "too_long", "characters", "scheme",
	    "credentials", "fragment", "host", "port", "path", "not_listed"};
	struct refusal refusal = {0};
	bool known = false;

	if (http_guard_url(list, url, &refusal)) {
		struct http_destinations none = {0};

		require(list->count > 0 && strlen(url) <= HTTP_URL_MAX);
		require(!strpbrk(url, " \t\r\n\\#"));
		/* an @ before the path would make a name and a password of the host */
		const char *host = strstr(url, "://") + 3;
		require(strcspn(host, "@") >= strcspn(host, "/?"));
		require(!http_guard_url(&none, url, &refusal));
		require(strcmp(refusal.code, "not_listed") == 0);
		return;
	}
	for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
		known |= strcmp(refusal.code, codes[i]) == 0;
	require(known && refusal.text[0]);
}

static void check_service_url(const char *text)
{
	static const struct http_destinations nowhere;
	const unsigned char other[4] = {10, 0, 0, 1};
	struct service_address address = service_address_make(AF_INET, other, 50051);
	OWNED(text_finish) struct text located = {0}, connect_to = {0};
	struct service_url url;
	struct refusal refusal = {0};
	struct err err = {0};

	if (!service_url_is(text))
		return;
	if (service_url_parse(text, &url, &err)) {
		require(!url.name == (url.address_count > 0));
		service_url_locate(
		    &url, url.name ? &address : url.addresses, &located, &connect_to);
		require(!connect_to.length == !url.name);
		require(!http_guard_url(&nowhere, text_string(&located), &refusal));
		/* The name may be as long as its own URL may be, without the port. */
		require(strcmp(refusal.code, "not_listed") == 0 ||
			strcmp(refusal.code, "too_long") == 0);
	} else {
		require(err.kind == ERR_CONFIG && err.message[0]);
	}
	service_url_finish(&url);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	owned_text char *text = xmalloc(size + 1);
	char *rest = text, *line;
	struct http_destinations destinations = {0};
	struct http_networks networks = {0};
	struct err err = {0};

	memcpy(text, data, size);
	text[size] = '\0';
	if ((line = strsep(&rest, "\n")) && !http_destinations_parse(line, &destinations, &err))
		require(err.kind == ERR_CONFIG && err.message[0] && !destinations.rows);
	if ((line = strsep(&rest, "\n")) && !http_networks_parse(line, &networks, &err))
		require(err.kind == ERR_CONFIG && err.message[0] && !networks.rows);
	for (size_t i = 0; i < networks.count; i++)
		require(networks.rows[i].bits >= 0 && networks.rows[i].bits <= 128);
	while ((line = strsep(&rest, "\n"))) {
		check_url(&destinations, line);
		check_service_url(line);
	}
	http_destinations_finish(&destinations);
	http_networks_finish(&networks);
	return 0;
}
