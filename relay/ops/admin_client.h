#pragma once
/* The other side of both endpoints, for commands. Blocks at most timeout_ms. */
#include "errors.h"
#include "text.h"

/*
 * GET path at `listen` (as in admin_start; 0.0.0.0 and [::] mean this host). Any complete answer is
 * a success: its status and its body, of at most 1 MiB.
 */
bool admin_get(const char *listen, const char *path, int timeout_ms, int *ret_status,
    struct text *body, struct err *err) MUST_CHECK;

/* Of the HTTP interface. */
struct admin_order {
	const char *path;
	const char *token; /* NULL: none */
	const char *body;  /* JSON, which is posted; NULL: GET */
	int timeout_ms;
};
/* The same as admin_get, at [api] listen. */
bool admin_ask(const char *listen, const struct admin_order *order, int *ret_status,
    struct text *body, struct err *err) MUST_CHECK;
