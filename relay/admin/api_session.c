#include "api_session.h"

#include <inttypes.h>
#include <string.h>
#include "cleanup.h"
#include "clock.h"
#include "console_session.h"

enum { RENEW_S = 60 };

/* --- the cookie ------------------------------------------------------------------------------ */

static bool is_secure(const struct config_api *config)
{
	return config->tls.certificate[0] || text_starts(config->public_url, "https://");
}

/* With this prefix a browser takes the cookie over TLS only, and only from this very host. */
static const char *cookie_name(const struct config_api *config)
{
	return is_secure(config) ? "__Host-outbox-relay" : "outbox-relay";
}

static void set_cookie(struct api_call *call, const char *value, int64_t seconds)
{
	const struct config_api *config = &api_config(call->api)->api;

	free(call->cookie);
	call->cookie = xformat("%s=%s; Path=/; Max-Age=%" PRId64 "; HttpOnly; SameSite=Strict%s",
	    cookie_name(config), value, seconds, is_secure(config) ? "; Secure" : "");
}

void api_session_set_cookie(struct api_call *call)
{
	const struct config_api *config = &api_config(call->api)->api;
	int64_t now_s = clock_wall_us() / 1000000;
	unsigned char key[SIGNING_KEY];
	owned_text char *value = NULL;

	api_session_key(call->api, key);
	call->session.used_s = now_s;
	value = session_write(key, &call->session);
	set_cookie(call, value, call->session.begun_s + config->session_max_ms / 1000 - now_s);
}

void api_session_remove_cookie(struct api_call *call)
{
	set_cookie(call, "", 0);
}

static const char *shown_cookie(const struct api_call *call)
{
	return MHD_lookup_connection_value(
	    call->connection, MHD_COOKIE_KIND, cookie_name(&api_config(call->api)->api));
}

bool api_session_is_shown(const struct api_call *call)
{
	return api_config(call->api)->api.console && !api_request_header(call, "Authorization") &&
	       shown_cookie(call);
}

/* --- the page -------------------------------------------------------------------------------- */

/* "https://relay.example": public_url, or the address that the browser calls. */
static char *own_origin(const struct api_call *call)
{
	const struct config_api *config = &api_config(call->api)->api;
	const char *host = api_request_header(call, "Host");
	size_t length = strlen(config->public_url);

	if (length > 0)
		return xformat("%.*s",
		    (int)(config->public_url[length - 1] == '/' ? length - 1 : length),
		    config->public_url);
	return xformat("%s://%s", config->tls.certificate[0] ? "https" : "http", host ? host : "");
}

bool api_session_check_origin(struct api_call *call)
{
	const char *origin = api_request_header(call, "Origin");
	owned_text char *own = own_origin(call);

	/* A browser always sends it with such a request; other programs have no session to abuse.
	 */
	if (!origin || strcasecmp(origin, own) == 0)
		return true;
	api_refuse(call, 403, "wrong_origin",
	    "the request comes from a page of %.100s, and this console is at %.100s: open it "
	    "there, "
	    "or set [api] public_url to the URL that browsers call",
	    origin, own);
	return false;
}

/* --- the session ----------------------------------------------------------------------------- */

static void refuse_cookie(struct api_call *call, const char *why)
{
	/* Without its cookie, the next request of the page would not learn why, and a stream of
	 * events shows no text. */
	if (!text_equal(call->verb->name, "events"))
		api_session_remove_cookie(call);
	api_refuse(call, 401, "session_ended", "%s: log in again", why);
}

static bool is_over(const struct api_call *call, int64_t now_s)
{
	const struct config_api *config = &api_config(call->api)->api;

	return now_s >= call->session.begun_s + config->session_max_ms / 1000 ||
	       now_s >= call->session.used_s + config->session_idle_ms / 1000;
}

/* The cookie is renewed now and then, not with each request. */
static bool is_renewal_due(const struct api_call *call, int64_t now_s)
{
	int64_t idle_s = api_config(call->api)->api.session_idle_ms / 1000;

	return now_s >= call->session.used_s + (idle_s / 4 < RENEW_S ? idle_s / 4 : RENEW_S);
}

static bool check_csrf(struct api_call *call, const unsigned char key[SIGNING_KEY])
{
	const char *csrf = api_request_header(call, "X-CSRF-Token");

	if (csrf && session_csrf_check(key, &call->session, csrf))
		return true;
	api_refuse(call, 403, "wrong_csrf_token",
	    "X-CSRF-Token is not that of the session: take it from GET /console/session; reload "
	    "the "
	    "page if it was open during a login");
	return false;
}

void api_session_judge(struct api_call *call, bool is_unsafe)
{
	int64_t now_s = clock_wall_us() / 1000000;
	unsigned char key[SIGNING_KEY];

	api_session_key(call->api, key);
	if (!session_read(key, shown_cookie(call), &call->session))
		return refuse_cookie(call, "this relay does not know the session");
	if (is_over(call, now_s))
		return refuse_cookie(call, "the session has ended");
	call->caller = api_caller_of_session(call->api, &call->session);
	if (!call->caller)
		return refuse_cookie(call, "the token of the session is no longer valid");

	if (is_unsafe && (!api_session_check_origin(call) || !check_csrf(call, key)))
		return;
	if (is_renewal_due(call, now_s))
		api_session_set_cookie(call);
}
