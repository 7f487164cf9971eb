#include "server_order.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "cleanup.h"
#include "confirm.h"
#include "field.h"

/* The members that the preview and the order have in common. */
static json_t *order_body(const struct server_order *order)
{
	json_t *body = json_object();

	if (order->scope)
		json_object_set_new(body, order->scope_name, json_string(order->scope));
	if (order->ids)
		json_object_set_new(body, "ids", json_deep_copy(order->ids));
	else
		json_object_set_new(body, "filter", json_deep_copy(order->filter));
	return body;
}

static bool ask_preview(const struct call *call, const struct server_order *order,
    json_t **ret_preview, struct err *err)
{
	json_t *body = order_body(order);
	bool done;

	if (order->verb)
		json_object_set_new(body, "verb", json_string(order->verb));
	done = server_ask(call, order->preview_path, body, ret_preview, err);
	json_decref(body);
	return done;
}

/* "at least " */
static const char *preview_bound(const json_t *preview)
{
	return json_is_false(json_object_get(preview, "exact")) ? "at least " : "";
}

static void print_preview(
    const struct call *call, const struct server_order *order, const json_t *preview)
{
	const json_t *sample = json_object_get(preview, "sample"), *row;
	int64_t count = field_number(preview, "count");
	OWNED(text_finish) struct text out = {0};
	size_t i;

	printf("%s of %s%" PRId64 " %s%s", order->verb ? order->verb : "redrive",
	    preview_bound(preview), count, order->what, text_plural(count));
	if (json_object_get(preview, "gone_before"))
		printf("; %s more went back before", field_member(preview, "gone_before"));
	puts("");
	/* with --yes nobody reads the sample before the order */
	if (call_flag(call, "yes") && !call_flag(call, "dry-run"))
		return;
	json_array_foreach(sample, i, row)
	{
		order->add_row(&out, row);
	}
	fputs(text_string(&out), stdout);
	if (count > (int64_t)json_array_size(sample))
		puts("…");
	fflush(stdout);
}

static bool confirm_order(const struct call *call, const struct server_order *order,
    const json_t *preview, struct err *err)
{
	int64_t count = field_number(preview, "count");
	owned_text char *question = xformat("%s %s%" PRId64 " %s%s?", order->question,
	    preview_bound(preview), count, order->what, text_plural(count));

	return confirm_call(call, question, err);
}

/* The last answer replaces the first one at *answer; its `sent` becomes the sum of all. */
static bool repeat_order(const struct call *call, const struct server_order *order,
    const json_t *body, json_t **answer, struct err *err)
{
	int64_t sent = field_number(*answer, "sent");

	while (field_number(*answer, "left") > 0) {
		const char *error = json_string_value(json_object_get(*answer, "error"));
		json_t *next;

		if (error)
			return err_set(
			    err, ERR_RETRY, "%" PRId64 " went back, then: %s", sent, error);
		if (!server_ask(call, order->path, body, &next, err))
			return err_prefix(err, "%" PRId64 " went back, then", sent);
		json_decref(*answer);
		*answer = next;
		sent += field_number(next, "sent");
	}
	json_object_set_new(*answer, "sent", json_integer(sent));
	return true;
}

static bool carry_order_out(const struct call *call, const struct server_order *order,
    const json_t *preview, json_t **ret_answer, struct err *err)
{
	json_t *token = json_object_get(preview, "token");
	json_t *body = order_body(order);
	bool done;

	json_object_set_new(body, "reason", json_string(confirm_reason(call)));
	if (order->verb && text_equal(order->path, "/v1/lookback/operate"))
		json_object_set_new(body, "verb", json_string(order->verb));
	/* named rows need no token: the order is about these and no others */
	if (!order->ids)
		json_object_set(body, "token", token);
	done = server_ask(call, order->path, body, ret_answer, err) &&
	       (!order->repeats || json_object_get(*ret_answer, "job") ||
		   repeat_order(call, order, body, ret_answer, err));
	json_decref(body);
	return done;
}

/* All that match went back before: an order would be a job without work. */
static bool nothing_goes_back(const struct server_order *order, const json_t *preview)
{
	return order->repeats && field_number(preview, "count") == 0 &&
	       json_is_true(json_object_get(preview, "exact"));
}

bool server_order_send(
    const struct call *call, const struct server_order *order, json_t **ret_answer, struct err *err)
{
	json_t *preview = NULL;
	bool done;

	*ret_answer = NULL;
	if (!ask_preview(call, order, &preview, err))
		return false;
	print_preview(call, order, preview);
	if (call_flag(call, "dry-run")) {
		puts("nothing was requested: --dry-run");
		done = true;
	} else if (nothing_goes_back(order, preview)) {
		puts("nothing was requested: none is left to go back");
		done = true;
	} else if (!order->ids && json_is_null(json_object_get(preview, "token"))) {
		done = err_set(err, ERR_REJECT,
		    "more match than one order takes: choose fewer, for example by a time");
	} else {
		done = confirm_order(call, order, preview, err) &&
		       carry_order_out(call, order, preview, ret_answer, err);
	}
	json_decref(preview);
	return done;
}
