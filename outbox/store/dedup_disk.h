#pragma once
/* What a disk refuses, and what to do about it: the setting, and the cure. */
#include "errors.h"

/*
 * Fills *err from errno: "NAME cannot be WHAT: why; the cure". ERR_DENIED: a right, or a disk that
 * is read only; else ERR_RETRY. Returns false.
 */
bool dedup_disk_fail(const char *name, const char *what, struct err *err);
/* The same of an errno; the cure begins with "; ", or is empty. */
enum err_kind dedup_disk_kind(int error);
/*
 * Opens a folder of state, and looks whether somebody else could put files into it: it is no
 * symbolic link, belongs to this user or to root, and others may not write to it; its group may
 * where it is root's, as on volumes of Kubernetes. Returns the descriptor, or -1: errno is that of
 * open, or 0 and *ret_why says what is wrong.
 */
int dedup_disk_open_folder(const char *path, const char **ret_why);
const char *dedup_disk_cure(int error);
