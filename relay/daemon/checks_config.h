#pragma once
/*
 * What `check-config` says: everything that `run` refuses for the configuration alone, and what
 * would fail at the first request. Files are read; nothing is connected to and no name is resolved.
 */
#include "config.h"
#include "errors.h"

/* ERR_CONFIG: names section and key. */
bool checks_config(const struct config *config, struct err *err) MUST_CHECK;
