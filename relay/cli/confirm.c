#include "confirm.h"

#include <stdio.h>
#include <unistd.h>
#include "text.h"

bool confirm_can_ask(void)
{
	return isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
}

bool confirm_ask(const char *question, struct err *err)
{
	char answer[16] = "";

	fprintf(stderr, "%s Type yes: ", question);
	if (fgets(answer, sizeof answer, stdin) && text_equal(answer, "yes\n"))
		return true;
	return err_set(err, ERR_REJECT, "not confirmed, nothing was done");
}
