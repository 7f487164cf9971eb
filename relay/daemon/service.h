#pragma once
/* The service manager: sd_notify's protocol, which is one datagram to $NOTIFY_SOCKET. */
#include <stdint.h>

/* "READY=1", "STOPPING=1", "WATCHDOG=1", … Nothing happens without a manager. */
void service_notify(const char *state);
/* How often WATCHDOG=1 is due at least; 0: nobody waits for it. */
int64_t service_watchdog_ms(void);
