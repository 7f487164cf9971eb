#pragma once
/* What the functions of liboutbox tell an application, of an error of ours; and the other way. */
#include "errors.h"
#include "outbox_public.h"

/* ret_error may be NULL. */
void outbox_error_of(const struct err *err, struct outbox_error *ret_error);
/* Its reverse. Returns false, as err_set does. */
bool outbox_error_take(const struct outbox_error *error, struct err *err);
