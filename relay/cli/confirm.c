#include "confirm.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "cleanup.h"
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

/* The length of the first word of a list; *list moves behind its comma. */
static size_t next_word(const char **list)
{
	size_t length = strcspn(*list, ",");

	*list += length + ((*list)[length] == ',');
	return length;
}

static bool has_word(const char *const *words, const char *word, size_t length)
{
	for (; *words; words++)
		if (strlen(*words) == length && strncmp(*words, word, length) == 0)
			return true;
	return false;
}

bool confirm_check_force(const struct call *call, const char *const *words, struct err *err)
{
	OWNED(text_finish) struct text known = {0};

	for (const char *list = call_text(call, "force", ""); *list;) {
		const char *word = list;
		size_t length = next_word(&list);

		if (has_word(words, word, length))
			continue;
		for (; *words; words++)
			text_addf(&known, "%s%s", known.length ? ", " : "", *words);
		return err_set(err, ERR_REJECT, "--force names what is forced (%s), not \"%.*s\"",
		    text_string(&known), (int)(length < 60 ? length : 60), word);
	}
	/* an empty variable in a script must not pass for no --force at all */
	return !call_flag(call, "force") || *call_text(call, "force", "") ||
	       err_set(err, ERR_REJECT, "--force is empty: name what is forced");
}

bool confirm_is_forced(const struct call *call, const char *word)
{
	const char *const words[] = {word, NULL};

	for (const char *list = call_text(call, "force", ""); *list;) {
		const char *named = list;

		if (has_word(words, named, next_word(&list)))
			return true;
	}
	return false;
}
