#pragma once
/* Definitions that the public headers of liboutbox share. */

/* Marks a symbol that liboutbox exports; all others are hidden. */
#define OUTBOX_PUBLIC __attribute__((visibility("default")))

/* The kind of an error says how to go on. */
enum outbox_error_kind {
	OUTBOX_RETRY,  /* the other side is away or busy: the same call may succeed later */
	OUTBOX_REJECT, /* this input is refused permanently; others may pass */
	OUTBOX_CONFIG, /* the configuration is wrong */
	OUTBOX_DENIED, /* a privilege or a password is missing */
	OUTBOX_FENCED, /* another process owns it now */
	OUTBOX_FATAL,  /* cannot go on: open it again */
};

struct outbox_error {
	enum outbox_error_kind kind;
	char message[1024]; /* one line: the place, the problem, what to do */
};
