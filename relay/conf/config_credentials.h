#pragma once
/* Makes the credentials of a section from its keys. */
#include "config.h"
#include "http_credentials.h"

/* As http_credentials_open; the keys outlive them. kind: "deliver", "check". */
struct http_credentials *config_credentials_open(const struct config_credentials *keys,
    const char *kind, const char *name, const char **ret_key, struct err *err);
