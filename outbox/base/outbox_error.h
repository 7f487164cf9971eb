#pragma once
/* What the functions of liboutbox tell an application, of an error of ours. */
#include "errors.h"
#include "outbox_public.h"

/* ret_error may be NULL. */
void outbox_error_of(const struct err *err, struct outbox_error *ret_error);
