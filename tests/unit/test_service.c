#include "service.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>
#include "text.h"

/* A manager's socket in the abstract name space: no file is left behind. */
static int manager(char address[108])
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0), length;

	length = snprintf(address, 108, "@outbox-relay-test-%d", (int)getpid());
	memcpy(name.sun_path + 1, address + 1, (size_t)length - 1);
	assert_int_equal(bind(fd, (struct sockaddr *)&name,
			     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)length)),
	    0);
	return fd;
}

static void the_manager_is_told_in_one_datagram(void **state)
{
	char address[108], heard[64] = "";
	int fd = manager(address);

	(void)state;
	setenv("NOTIFY_SOCKET", address, 1);
	service_notify("READY=1");
	assert_int_equal(recv(fd, heard, sizeof heard, MSG_DONTWAIT), 7);
	assert_string_equal(heard, "READY=1");
	unsetenv("NOTIFY_SOCKET");
	service_notify("STOPPING=1");
	assert_int_equal(recv(fd, heard, sizeof heard, MSG_DONTWAIT), -1);
	close(fd);
}

static void the_watchdog_is_for_the_named_process(void **state)
{
	char pid[16];

	(void)state;
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
	assert_int_equal(service_watchdog_ms(), 0);
	setenv("WATCHDOG_USEC", "30000000", 1);
	assert_int_equal(service_watchdog_ms(), 30000);
	snprintf(pid, sizeof pid, "%d", (int)getpid());
	setenv("WATCHDOG_PID", pid, 1);
	assert_int_equal(service_watchdog_ms(), 30000);
	setenv("WATCHDOG_PID", "1", 1);
	assert_int_equal(service_watchdog_ms(), 0);
	setenv("WATCHDOG_USEC", "soon", 1);
	assert_int_equal(service_watchdog_ms(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_manager_is_told_in_one_datagram),
	    cmocka_unit_test(the_watchdog_is_for_the_named_process),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
