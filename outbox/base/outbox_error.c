#include "outbox_error.h"

#include "text.h"

_Static_assert((int)ERR_RETRY == OUTBOX_RETRY && (int)ERR_REJECT == OUTBOX_REJECT &&
		   (int)ERR_CONFIG == OUTBOX_CONFIG && (int)ERR_DENIED == OUTBOX_DENIED &&
		   (int)ERR_FENCED == OUTBOX_FENCED && (int)ERR_FATAL == OUTBOX_FATAL,
    "the kinds have the same numbers");

void outbox_error_of(const struct err *err, struct outbox_error *ret_error)
{
	if (!ret_error)
		return;
	ret_error->kind = (enum outbox_error_kind)err->kind;
	text_copy(ret_error->message, sizeof ret_error->message, err->message);
}

bool outbox_error_take(const struct outbox_error *error, struct err *err)
{
	return err_set(err, (enum err_kind)error->kind, "%s", error->message);
}
