#pragma once
/*
 * The checks of `check-config`: everything that `run` refuses because of the configuration alone,
 * and settings that would fail at the first request. The checks read files, but make no connection
 * and resolve no name.
 */
#include "config.h"
#include "errors.h"

/* ERR_CONFIG: names section and key. */
bool checks_config(const struct config *config, struct err *err) MUST_CHECK;
