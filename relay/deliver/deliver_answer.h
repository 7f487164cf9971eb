#pragma once
/*
 * Decides the outcome of messages by the answer to their request. Pure; docs/reference/sidecar.md
 * describes the wire format.
 *
 *   2xx                        done
 *   409                        a duplicate
 *   401 in spite of credentials they wait, and no attempt is spent: it is about the relay
 *   429, 503 with Retry-After  they wait for so long, and no attempt is spent
 *   429, 503, 408, other 5xx   tried again, as when no answer came
 *   other 4xx, 3xx             dead; of a batch: each of them is sent alone first, so that one that
 *                              cannot be taken takes no other along
 *   no answer                  tried again; it costs an attempt only if the application may have
 *                              got it, and a probe of the breaker costs none either
 *
 * A batch gets 2xx and an empty body when all of it is done, or an array with a status of each:
 *
 *   [{"id": "7", "status": 200}, {"id": "8", "status": 503, "retry_after": 5, "reason": "full"}]
 *
 * A message that is not in the array is tried again. If the array is malformed anywhere, names an
 * id that was not sent, or names an id twice, none of it counts: all messages are tried again.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "breaker.h"
#include "config.h"
#include "inbox.h"

/* As http_response has it; all of it is the caller's. */
struct deliver_response {
	const char *failure;    /* NULL: there is a whole answer */
	const char *error;      /* for people, with a failure */
	bool tried;             /* with a failure: the application may have got it */
	int status;             /* 0: none came */
	int64_t retry_after_ms; /* -1: not said */
	const char *encoding;   /* of the body; NULL: none */
	const char *body;
	size_t length;
};

struct deliver_verdict {
	enum outbox_inbox_result result;
	int64_t after_ms; /* 0: as the settings say */
	char reason[400]; /* UTF-8 without control characters; "": none is needed */
};

struct deliver_answer {
	struct deliver_verdict *verdicts; /* one for each message, in their order */
	size_t count;
	/* The messages must be sent once more, each alone; the verdicts are not valid. */
	bool apart;
	/*
	 * About the application as a whole. Each answer shows that it works, also a refusal, except
	 * 401 in spite of credentials, 408, 429, 5xx and malformed answers.
	 */
	enum breaker_outcome outcome;
	/* For the metrics: "2xx" to "5xx", "answer" for a malformed body, or the failure. */
	const char *label;
};

struct deliver_judge {
	enum deliver_form form;
	int64_t retry_after_max_ms;
	bool has_credentials; /* the section has headers or a token of its own */
};

/* ids: those of the events that were sent, no two the same. The caller finishes *answer. */
void deliver_answer_read(struct deliver_answer *answer, const struct deliver_judge *judge,
    const char *const *ids, size_t count, const struct deliver_response *response);
void deliver_answer_finish(struct deliver_answer *answer);
