#include "confirm.h"

#include <stdio.h>
#include <string.h>
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

bool confirm_check(const struct call *call, struct err *err)
{
	const char *reason = call_text(call, "reason", "");

	if (call_flag(call, "dry-run"))
		return true;
	if (reason[strspn(reason, " \t\n")] == '\0')
		return err_set(err, ERR_REJECT,
		    "say why: --reason TEXT is kept with the request, in outbox.audit");
	return call_flag(call, "yes") || confirm_can_ask() ||
	       err_set(err, ERR_REJECT, "nobody can be asked here; repeat with --yes to do it");
}

bool confirm_call(const struct call *call, const char *question, struct err *err)
{
	return call_flag(call, "yes") || confirm_ask(question, err);
}
