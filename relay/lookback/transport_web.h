#pragma once
/*
 * What http and grpc share: a question is one POST, its answer one response. A dialect says what
 * they look like.
 */
#include "http_client.h"
#include "text.h"
#include "transport_private.h"

struct web_dialect {
	enum http_protocol protocol;
	const struct http_header *headers;
	int header_count;
	const char *timeout_header; /* how long we wait goes there, "10000m"; NULL: nowhere */
	/* Where a service is asked, of its URL. ERR_REJECT: that is no URL for it. */
	bool (*locate)(const char *url, struct text *ret_url, struct err *err);
	void (*write)(const struct check_question *question, struct text *ret_body);
	size_t
	    unsigned_bytes; /* so many at the beginning of a body are no part of what is signed */
	/* Of a whole response of any status; status, sent and times are the caller's. */
	void (*read)(struct reply *reply, const struct http_response *response);
	/* Of the status in the answer, when a whole one came (transport.h). */
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
