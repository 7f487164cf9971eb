#pragma once
/* Names of machines, as they are configured. */
#include <stdbool.h>
#include <stddef.h>

/*
 * Whether the first `length` bytes of `host` name this machine: localhost, an address of
 * 127.0.0.0/8, or ::1 with or without brackets. Looks at the text alone and resolves nothing: a
 * name may mean another address tomorrow.
 */
bool host_is_loopback(const char *host, size_t length);
