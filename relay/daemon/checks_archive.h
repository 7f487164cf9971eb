#pragma once
/* The check of the folder of `retention = archive`, for `doctor`. */
#include "checks.h"

/* Makes a file in the folder, and removes it. */
void checks_archive(struct checks *checks, const struct postgres_settings *postgres);
