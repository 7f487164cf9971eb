#pragma once
/* Names of machines in the configuration. */
#include <stdbool.h>
#include <stddef.h>

/*
 * Whether the first `length` bytes of `host` name this machine: localhost, an address of
 * 127.0.0.0/8, or ::1 with or without brackets. Looks only at the text and resolves nothing: a name
 * may have another address tomorrow.
 */
bool host_is_loopback(const char *host, size_t length);
