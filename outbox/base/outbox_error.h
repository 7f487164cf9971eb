#pragma once
/* Turns our error into the public error of liboutbox, and back. */
#include "errors.h"
#include "outbox_public.h"

/* ret_error may be NULL. */
void outbox_error_of(const struct err *err, struct outbox_error *ret_error);
/* The reverse of outbox_error_of. Returns false, as err_set does. */
bool outbox_error_take(const struct outbox_error *error, struct err *err);
