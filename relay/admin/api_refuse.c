/* Refuses requests with problem documents. */
#include <stdio.h>
#include <string.h>
#include "api_private.h"
#include "json_slice.h"
#include "text.h"

enum { MOST_REASON = 500 };

static void answer_problem(
    struct api_call *call, unsigned status, const char *code, const char *format, va_list arguments)
{
	char text[512];

	vsnprintf(text, sizeof text, format, arguments);
	api_answer(call, status, api_problem(code, status, text, call->request_id));
}

void api_refuse(struct api_call *call, unsigned status, const char *code, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	answer_problem(call, status, code, format, arguments);
	va_end(arguments);
}

bool api_refuse_value(struct api_call *call, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	answer_problem(call, 400, "bad_value", format, arguments);
	va_end(arguments);
	return false;
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

bool api_check_object(struct api_call *call, const struct json_limits *limits)
{
	const char *text = text_string(&call->body);
	struct refusal refusal;

	if (!json_check(text, call->body.length, limits, &refusal))
		api_refuse(call, 400, refusal.code, "%s", refusal.text);
	else if (text[strspn(text, " \t\r\n")] != '{')
		api_refuse(call, 400, "bad_json", "the body is no JSON object");
	else
		return true;
	return false;
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
