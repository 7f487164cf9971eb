#include "signals.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

int signals_open(struct err *err)
{
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	/* Threads that start later inherit this, so that signals come by the descriptor only. */
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	if (fd < 0)
		err_set(err, ERR_FATAL, "no signalfd: %s", strerror(errno));
	return fd;
}

enum signals_event signals_read(int fd)
{
	struct signalfd_siginfo info;

	if (read(fd, &info, sizeof info) != sizeof info)
		return SIGNALS_NONE;
	return info.ssi_signo == SIGHUP ? SIGNALS_RELOAD : SIGNALS_END;
}
