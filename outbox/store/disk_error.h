#pragma once
/* Messages for disk errors, each with a cure: a setting to change, or a repair. */
#include "errors.h"

/*
 * Fills *err from errno: "NAME cannot be WHAT: why; the cure". ERR_DENIED: a permission is missing,
 * or the disk is read-only; otherwise ERR_RETRY. Returns false.
 */
bool disk_error_fail(const char *name, const char *what, struct err *err);
/* The parts of that error, for an errno. The cure begins with "; ", or is empty. */
enum err_kind disk_error_kind(int error);
const char *disk_error_cure(int error);
