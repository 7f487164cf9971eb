#pragma once
/* What a disk refuses, and what to do about it: the setting, and the cure. */
#include "errors.h"

/*
 * Fills *err from errno: "NAME cannot be WHAT: why; the cure". ERR_DENIED: a right, or a disk that
 * is read only; else ERR_RETRY. Returns false.
 */
bool disk_error_fail(const char *name, const char *what, struct err *err);
/* The same of an errno; the cure begins with "; ", or is empty. */
enum err_kind disk_error_kind(int error);
const char *disk_error_cure(int error);
