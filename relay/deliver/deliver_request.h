#pragma once
/*
 * The request by which messages are delivered: headers and body, without the signature. Pure.
 * docs/reference/sidecar.md describes the wire format.
 *
 *   single, binary       the payload; ce-id, ce-source, ...; the payload's Content-Type
 *   single, structured   application/cloudevents+json: the event; also in binary mode when the
 *                        payload is no UTF-8
 *   batch                application/cloudevents-batch+json: an array of events
 */
#include "config.h"
#include "deliver_event.h"
#include "http_client.h"

struct deliver_wire {
	enum deliver_form form;
	enum deliver_mode mode;
	struct deliver_event_defaults defaults;
	bool has_credentials; /* the request needs room for their headers */
};

/* Embedded on purpose. */
struct deliver_request {
	struct http_header *headers; /* with room for those of a signature and of credentials */
	size_t header_count;
	const void *body; /* bytes of the message, or of `written` */
	size_t body_length;
	/*
	 * The value of webhook-id: for one message the id of its event, if that may be signed. It
	 * is the same in each attempt with the same messages.
	 */
	const char *name;
	const char **ids; /* ids of the events, as answers name them */
	size_t count;
	/* its own */
	struct text written;
	struct arena memory;
};

/* The messages outlive it. One message unless the form is batch. */
void deliver_request_init(struct deliver_request *request, const struct deliver_wire *wire,
    const struct outbox_inbox_message *const *messages, size_t count);
void deliver_request_finish(struct deliver_request *request);

/* Two of its events have the same id, so that an answer could not tell them apart. */
bool deliver_request_is_ambiguous(const struct deliver_request *request);
