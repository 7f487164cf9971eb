#pragma once
/*
 * Shared by http and grpc: a question is one POST, its answer one response. A dialect defines their
 * form.
 */
#include "http_client.h"
#include "text.h"
#include "transport_private.h"

struct web_dialect {
	enum http_protocol protocol;
	bool takes_services; /* url may be a name or a list: grpc://shop */
	const struct http_header *headers;
	int header_count;
	const char *timeout_header; /* header for our timeout, "10000m"; NULL: none */
	/*
	 * Makes the URL of the request from the URL of a service. ERR_REJECT: the URL does not fit.
	 */
	bool (*locate)(const char *url, struct text *ret_url, struct err *err);
	void (*write)(const struct check_question *question, struct text *ret_body);
	size_t
	    unsigned_bytes; /* the signature excludes this many bytes at the beginning of a body */
	/* Reads a whole response of any status; the caller fills in status, sent and times. */
	void (*read)(struct reply *reply, const struct http_response *response);
	/*
	 * Does the status of a whole answer show that the service works? See `reached` in
	 * transport.h.
	 */
	bool (*is_well)(const struct reply *reply, const struct http_response *response);
};

struct transport *web_open(
    const struct web_dialect *dialect, const struct config_check *check, struct err *err);

/* What web_open would refuse. */
bool web_check(
    const struct web_dialect *dialect, const struct config_check *check, struct err *err);

/* For the rows of both. */
void web_close(struct transport *transport);
bool web_ask(struct transport *transport, const struct check_question *question, struct err *err);
int web_fd(const struct transport *transport);
int64_t web_deadline(const struct transport *transport);
void web_step(struct transport *transport, int64_t now_ms);
struct check_answer *web_take(struct transport *transport);
void web_release(struct transport *transport, struct check_answer *answer);
bool web_addresses(const struct transport *transport, struct transport_addresses *ret_addresses);
