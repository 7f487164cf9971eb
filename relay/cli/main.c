#include <sys/prctl.h>
#include "program.h"

int main(int argc, char **argv)
{
	/*
	 * Configuration, tokens and payloads are in memory: no core dump holds them, and no other
	 * process of the user reads them by /proc or ptrace.
	 */
	prctl(PR_SET_DUMPABLE, 0);
	return program_main(argc, argv);
}
