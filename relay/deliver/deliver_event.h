#pragma once
/*
 * A message as an event (CloudEvents 1.0): its attributes, and how they are written as headers of
 * HTTP (binary mode) or as a JSON object (structured mode). Pure.
 *
 * The record's own attributes are taken over: a header ce_NAME, where NAME is 1 to 64 of a-z and
 * 0-9 and the value is UTF-8 without control characters, is the attribute NAME, unless the record's
 * ce_specversion is not 1.0. A ce_time that is no time of RFC 3339, and a ce_source that is no URI,
 * are left out. Other attributes follow from the message:
 *
 *   id        the id by which copies are known, if it is such text, else "msg_" and 32 digits that
 *             are made of it; without an id of topic, partition and offset
 *   source    as configured, else /topics/TOPIC
 *   type      as configured, else the topic
 *   subject   the key, if it is such text
 *   time      of the record
 *
 * and these extensions are always ours: outboxtopic, outboxpartition and outboxoffset, where the
 * message was first; outboxattempt, from 1; outboxtoken, the fencing token of the claim on its id,
 * if ids are claimed; outboxtombstone, true: it has no payload, which is something else than an
 * empty one. A record of a retry topic says where its message was first.
 *
 * A record that is a structured event already (its content type is application/cloudevents+json and
 * its payload is such an object) has only an id, and is written as it is.
 */
#include <stdbool.h>
#include <stddef.h>
#include "arena.h"
#include "inbox.h"
#include "text.h"

enum {
	DELIVER_HEADERS_TAKEN = 64, /* more are left out: a server takes so many headers */
	DELIVER_ATTRIBUTES = DELIVER_HEADERS_TAKEN + 11,
	DELIVER_NAME_SIZE = 40,
};

#define DELIVER_TOKEN "outboxtoken"

struct deliver_attribute {
	const char *name, *value;
	bool bare; /* a number or a truth value of JSON, written without quotes */
};

/*
 * Embedded on purpose. Its contents are valid until it is finished, and only as long as the message
 * and the defaults live.
 */
struct deliver_event {
	struct deliver_attribute attributes[DELIVER_ATTRIBUTES];
	size_t count;
	const char *id;           /* an attribute, or the id in a structured event */
	const char *content_type; /* NULL: there is no payload, and the record does not say it */
	const void *payload;
	size_t length;
	bool known_json;   /* the payload: it was looked at */
	bool structured;   /* the payload is the event, with attributes of its own */
	const char *token; /* NULL: its id is not claimed */
	struct arena memory;
};

struct deliver_event_defaults {
	const char *source, *type; /* "": of the topic */
};

void deliver_event_init(struct deliver_event *event, const struct outbox_inbox_message *message,
    const struct deliver_event_defaults *defaults);
void deliver_event_finish(struct deliver_event *event);

/*
 * The payload can be the body of a request that programs verify: libraries of webhooks take the
 * body for text.
 */
bool deliver_event_is_text(const struct deliver_event *event);

/* NULL: it has no such attribute. */
const char *deliver_event_attribute(const struct deliver_event *event, const char *name);

/*
 * The value of an attribute as it is written in a header: a blank, a double quote, a percent sign,
 * and whatever is no visible ASCII, as %XX of its bytes in UTF-8.
 */
const char *deliver_event_encode(struct arena *memory, const char *value);

/*
 * The event as a JSON object: `data` when its type is JSON and so is its payload, which is copied
 * as it was written; else `data_base64`; neither when there is no payload. A structured event is
 * written as it is.
 */
void deliver_event_write(const struct deliver_event *event, struct text *text);

/*
 * Returns the id itself if it is a name that may be signed (http_sign.h). Else returns `made`:
 * "msg_" and 32 digits, which are always the same for the same bytes.
 */
const char *deliver_event_name(const char *id, char made[DELIVER_NAME_SIZE]);
