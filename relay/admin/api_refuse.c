/* Refuses requests with problem documents. */
#include <stdio.h>
#include "api_private.h"
#include "text.h"

enum { MOST_REASON = 500 };

void api_refuse(struct api_call *call, unsigned status, const char *code, const char *format, ...)
{
	char text[512];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	api_answer(call, status, api_problem(code, status, text, call->request_id));
}

void api_refuse_role(struct api_call *call)
{
	api_refuse(call, 403, "forbidden",
	    "[token \"%s\"] has no role for %s: an administrator of the relay can give it one",
	    call->caller->token.name, call->verb->name);
}

void api_refuse_scope(struct api_call *call, const char *what, const char *name)
{
	api_refuse(call, 403, "out_of_scope", "[token \"%s\"] is not for %s %s",
	    call->caller->token.name, what, name);
}

bool api_check_reason(struct api_call *call, const char *reason)
{
	int characters = 0, step;
	uint32_t code;

	for (const char *at = reason ? reason : ""; *at && (step = text_utf8(at, &code)) > 0;
	     at += step)
		characters++;
	if (characters >= 1 && characters <= MOST_REASON)
		return true;
	api_refuse(call, 400, "bad_value",
	    "reason has 1 to %d characters: say why, for the readers of the audit", MOST_REASON);
	return false;
}
