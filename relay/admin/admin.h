#pragma once
/*
 * The HTTP endpoint for machines: /livez, /readyz, /metrics (server.h; every listener of the
 * program lives in this folder). It knows nothing of slots or publishers: the daemon answers
 * through callbacks, /metrics is the page of metrics.h.
 *
 * Bounds: 1024 connections, of which one address has at most 512; 5 s for a request to arrive, 10 s
 * for its answer to be read and for an idle connection; 16 KiB of head; bodies are not read. GET
 * and HEAD; another method is 405, another path 404.
 */
#include "config.h"
#include "listener.h"
#include "errors.h"
#include "text.h"

struct admin;

/*
 * Appends one line a check to *report ("[+] postgres main", "[-] slot main/0: why"); true: all is
 * well. Called from the endpoint's worker, several times at once never; must not block for long.
 */
typedef bool admin_probe(void *context, struct text *report);

struct admin_callbacks {
	admin_probe *live, *ready;
	void *context;
};

/*
 * listen and hosts as the configuration has them, which outlives it. Takes the listener over, also
 * when it fails.
 */
struct admin *admin_start(struct listener *listener, const char *listen,
    const struct config_list *hosts, const struct admin_callbacks *callbacks, struct err *err);
/* Waits for the request under way. NULL is fine. */
void admin_stop(struct admin *admin);
/* "127.0.0.1:9187", as it was bound; owned by admin. */
const char *admin_address(const struct admin *admin);
