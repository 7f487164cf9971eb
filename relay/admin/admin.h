#pragma once
/*
 * The HTTP endpoint for machines: /livez, /readyz, /metrics (libmicrohttpd; every listener of the
 * program lives in this folder) behind a gate (gate.h). It knows nothing of publishers: the daemon
 * answers through callbacks, /metrics is the page of metrics.h.
 *
 * Bounds: 1024 connections, of which one address has at most 512; 16 KiB of head; a request arrives
 * within 5 s and has no body; its answer is read within 10 s. GET and HEAD; another method is 405,
 * another path 404.
 */
#include "config.h"
#include "listener.h"
#include "text.h"

struct admin;

/*
 * Appends one line per check to *report ("[+] postgres main", "[-] publisher main/0: why"); true:
 * all is well. Called from the endpoint's threads, one at a time; must not block for long.
 */
typedef bool admin_probe(void *context, struct text *report);

struct admin_callbacks {
	admin_probe *live, *ready;
	void *context;
};

/*
 * Takes over the listener, which is bound to [admin] listen, even on failure. The configuration
 * outlives the endpoint.
 */
struct admin *admin_start(struct listener *listener, const struct config *config,
    const struct admin_callbacks *callbacks, struct err *err);
/* Waits for the request under way. NULL is fine. */
void admin_stop(struct admin *admin);
/* "127.0.0.1:9187", as it was bound; owned by admin. */
const char *admin_address(const struct admin *admin);
