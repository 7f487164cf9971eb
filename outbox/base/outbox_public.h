#pragma once
/* What the public headers of liboutbox share. */

/* What liboutbox exports; everything else in the tree is hidden. */
#define OUTBOX_PUBLIC __attribute__((visibility("default")))

/* An error says what to do next. */
enum outbox_error_kind {
	OUTBOX_RETRY,  /* the other side is away or busy: the same call may succeed later */
	OUTBOX_REJECT, /* this input is refused for good; others may pass */
	OUTBOX_CONFIG, /* the configuration is wrong */
	OUTBOX_DENIED, /* a privilege or a password is missing */
	OUTBOX_FENCED, /* somebody else owns it now */
	OUTBOX_FATAL,  /* cannot go on: open it anew */
};

struct outbox_error {
	enum outbox_error_kind kind;
	char message[1024]; /* one line: the place, what is wrong, what to do */
};
