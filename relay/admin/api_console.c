/*
 * The console: its pages, which are in the program (relay/console), and the login of a browser.
 * [pages] need no token, since they show nothing without an answer of the interface.
 */
#include <string.h>
#include "api_private.h"
#include "api_session.h"
#include "cleanup.h"
#include "clock.h"
#include "console_files.h"
#include "logging.h"
#include "moment.h"
#include "console_session.h"

/* --- pages ----------------------------------------------------------------------------------- */

/* A page may load only our own files, and no page of another origin may show or read ours. */
static const struct gate_field page_fields[] = {
    {"Content-Security-Policy",
	"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
	"connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; "
	"frame-ancestors 'none'"},
    {"X-Frame-Options", "DENY"}, {"Referrer-Policy", "same-origin"},
    {"Cross-Origin-Opener-Policy", "same-origin"}, {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Cache-Control", "no-cache"}, /* a browser keeps the file, and compares its ETag */
};

static const struct console_file *find_console_file(const char *name)
{
	for (int i = 0; i < console_file_count; i++)
		if (text_equal(console_files[i].name, name))
			return &console_files[i];
	return NULL;
}

void api_console_page_begin(struct api_call *call)
{
	const struct console_file *file =
	    find_console_file(call->rest[0] ? call->rest : "index.html");
	const char *known = api_request_header(call, "If-None-Match");

	if (!file)
		return api_refuse(call, 404, "not_found",
		    "the console has no such file; its first page is /console/");
	for (size_t i = 0; i < sizeof page_fields / sizeof *page_fields; i++)
		api_add_field(call, page_fields[i].name, page_fields[i].value);
	api_add_field(call, "ETag", file->etag);
	call->media_type = file->type;
	call->status = known && strstr(known, file->etag) ? 304 : 200;
	if (call->status == 200)
		text_append(&call->answer, file->bytes, file->length);
}

/* Without the last slash, the page would look for its files in another folder. */
void api_console_redirect_begin(struct api_call *call)
{
	api_add_field(call, "Location", "/console/");
	call->media_type = "text/plain";
	call->status = 302;
}

/* --- login ----------------------------------------------------------------------------------- */

static json_t *words_json(const struct config_list *list)
{
	json_t *array = json_array();

	for (int i = 0; i < list->count; i++)
		json_array_append_new(array, api_text(list->items[i]));
	return array;
}

/* Everything that the pages need to know about their user. */
static json_t *session_json(struct api_call *call)
{
	const struct config *config = api_config(call->api);
	const struct config_token *token = &call->caller->token;
	json_t *answer = json_pack("{s:s, s:o, s:o, s:o, s:o, s:s}", "name", token->name, "roles",
	    words_json(&token->roles), "publishers", words_json(&token->publishers), "sections",
	    words_json(&token->sections), "types", words_json(&token->types), "version",
	    RELAY_VERSION);
	unsigned char key[SIGNING_KEY];
	char csrf[SIGNING_MAC_TEXT + 1], ends[MOMENT_SIZE];

	if (!call->session.name) {
		json_object_set_new(answer, "csrf_token", json_null());
		json_object_set_new(answer, "ends_at", json_null());
		return answer;
	}
	api_session_key(call->api, key);
	session_csrf(key, &call->session, csrf);
	moment_format(call->session.begun_s * 1000000 + config->api.session_max_ms * 1000, ends);
	json_object_set_new(answer, "csrf_token", json_string(csrf));
	json_object_set_new(answer, "ends_at", json_string(ends));
	return answer;
}

static void begin_console_session(struct api_call *call, const char *token)
{
	char fingerprint[SESSION_HEX + 1];

	call->caller = api_caller_of_token(call->api, token, fingerprint);
	if (!call->caller)
		return api_refuse_login(call);
	session_begin(
	    call->caller->token.name, fingerprint, clock_wall_us() / 1000000, &call->session);
	api_session_set_cookie(call);
	log_info("console_login", {"caller", LOG_TEXT(call->caller->token.name)},
	    {"request", LOG_TEXT(call->request_id)});
	api_answer(call, 200, session_json(call));
}

void api_console_login_begin(struct api_call *call)
{
	json_t *token = NULL;
	const struct api_member members[] = {{"token", 's', &token}};
	json_t *body = api_read_order(call);

	if (!body)
		return;
	if (!api_read_members(call, body, members, 1))
		goto done;
	if (token)
		begin_console_session(call, json_string_value(token));
	else
		api_refuse(call, 400, "missing_field", "token is missing: send {\"token\": \"…\"}");
done:
	json_decref(body);
}

void api_console_session_begin(struct api_call *call)
{
	api_answer(call, 200, session_json(call));
}

void api_console_logout_begin(struct api_call *call)
{
	api_session_remove_cookie(call);
	log_info("console_logout", {"caller", LOG_TEXT(call->caller->token.name)},
	    {"request", LOG_TEXT(call->request_id)});
	api_answer(call, 200, json_pack("{s:s}", "name", call->caller->token.name));
}
