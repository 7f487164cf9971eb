#pragma once
/* The other side of both endpoints, for commands. Blocks at most timeout_ms. */
#include "config.h"
#include "errors.h"
#include "text.h"

/* Where this configuration's endpoint listens; its texts live as long as the configuration. */
struct admin_place {
	const char *listen;          /* as admin_start takes it; 0.0.0.0 and [::] mean this host */
	const char *tls_certificate; /* that the endpoint shows; "": plain HTTP */
};
struct admin_place admin_place_of_admin(const struct config *config);
struct admin_place admin_place_of_api(const struct config_api *api);

/* GET path. Any complete answer is a success: its status and its body, of at most 1 MiB. */
bool admin_get(const struct admin_place *place, const char *path, int timeout_ms, int *ret_status,
    struct text *body, struct err *err) MUST_CHECK;

/* Of the HTTP interface. */
struct admin_order {
	const char *path;
	const char *token; /* NULL: none */
	const char *body;  /* JSON, which is posted; NULL: GET */
	int timeout_ms;
};
/* The same as admin_get, at [api] listen. */
bool admin_ask(const struct admin_place *place, const struct admin_order *order, int *ret_status,
    struct text *body, struct err *err) MUST_CHECK;
