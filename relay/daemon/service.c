#include "service.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "cleanup.h"
#include "logging.h"
#include "text.h"

void service_notify(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	size_t length = path ? strlen(path) : 0;
	owned_fd int fd = -1;

	if (length < 2 || length >= sizeof name.sun_path)
		return;
	memcpy(name.sun_path, path, length);
	/* @ stands for the abstract name space */
	if (name.sun_path[0] == '@')
		name.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&name,
			  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)) < 0)
		log_warn("service_manager_silent", {"socket", LOG_TEXT(path)},
		    {"state", LOG_TEXT(state)},
		    {"consequence", LOG_TEXT("the service manager does not learn the state")});
}

int64_t service_watchdog_ms(void)
{
	const char *interval = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
	int64_t us, watched;

	if (!interval || !text_to_int64(interval, 1, INT64_MAX, &us))
		return 0;
	/* The variables are inherited: the watchdog may be meant for the parent. */
	if (pid && (!text_to_int64(pid, 1, INT32_MAX, &watched) || watched != getpid()))
		return 0;
	return us / 1000;
}
