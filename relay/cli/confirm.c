#include "confirm.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "force_words.h"
#include "text.h"

bool confirm_can_ask(void)
{
	return isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
}

bool confirm_ask(const char *question, struct err *err)
{
	char answer[16] = "";

	/* the plan is on stdout, and must be on the screen before the question */
	fflush(stdout);
	fprintf(stderr, "%s Type yes: ", question);
	if (fgets(answer, sizeof answer, stdin) && text_equal(answer, "yes\n"))
		return true;
	return err_set(err, ERR_REJECT, "not confirmed, nothing was done");
}

bool confirm_check(const struct call *call, struct err *err)
{
	bool asks = !call_flag(call, "yes") && confirm_can_ask();

	/* a dry run changes nothing, so it needs neither a reason nor somebody to ask */
	if (call_flag(call, "dry-run"))
		return true;
	if (text_is_blank(call_text(call, "reason", asks ? "-" : "")))
		return err_set(err, ERR_REJECT, "say why: --reason TEXT is kept in outbox.audit%s",
		    asks || call_flag(call, "yes")
			? ""
			: "; there is no terminal to ask, so --yes is required as well");
	return asks || call_flag(call, "yes") ||
	       err_set(err, ERR_REJECT, "there is no terminal to ask; repeat with --yes");
}

bool confirm_call(const struct call *call, const char *question, struct err *err)
{
	return call_flag(call, "yes") || confirm_ask(question, err);
}

const char *confirm_reason(const struct call *call)
{
	return call_text(call, "reason", "confirmed on a terminal without a reason");
}

bool confirm_check_force(const struct call *call, const char *const *words, struct err *err)
{
	if (!force_words_check("--force", call_text(call, "force", ""), words, err))
		return false;
	/* an empty variable in a script must not pass for no --force at all */
	return !call_flag(call, "force") || *call_text(call, "force", "") ||
	       err_set(err, ERR_REJECT, "--force is empty: name what is forced");
}
