#pragma once
/*
 * The HTTP endpoint for machines: /livez, /readyz, /metrics (libmicrohttpd; every listener of the
 * program lives in this folder). It knows nothing of slots or publishers: the daemon answers
 * through callbacks, /metrics is the page of metrics.h.
 *
 * Bounds: 32 connections, 10 s for a request or an idle connection, 16 KiB of head, bodies are not
 * read. GET and HEAD; another method is 405, another path 404.
 */
#include "errors.h"
#include "text.h"

struct admin;

/*
 * Appends one line a check to *report ("[+] postgres main", "[-] slot main/0: why"); true: all is
 * well. Called from the endpoint's thread, several times at once never; must not block for long.
 */
typedef bool admin_probe(void *context, struct text *report);

struct admin_callbacks {
	admin_probe *live, *ready;
	void *context;
};

/*
 * listen is "host:port", "[v6]:port", or a port on 127.0.0.1; port 0: any free one. An address that
 * cannot be had (occupied, not of this host, privileged) is ERR_CONFIG: no later try mends it.
 */
struct admin *admin_start(
    const char *listen, const struct admin_callbacks *callbacks, struct err *err);
/* Waits for the request under way. NULL is fine. */
void admin_stop(struct admin *admin);
/* "127.0.0.1:9187", as it was bound; owned by admin. */
const char *admin_address(const struct admin *admin);
