/* Checks [token] sections: each has its own tokens, known roles, and a scope that exists. */
#include <string.h>
#include "cleanup.h"
#include "config_source.h"

enum { TOKEN_LENGTH = 16 };

static const struct {
	const char *word;
	enum config_role role;
} roles[] = {{"read", ROLE_READ}, {"payload", ROLE_PAYLOAD}, {"send", ROLE_SEND},
    {"operate", ROLE_OPERATE}, {"decide", ROLE_DECIDE}};
enum { ROLES = sizeof roles / sizeof *roles };

/* 0: no such role. */
static unsigned role_of(const char *word)
{
	for (int i = 0; i < ROLES; i++)
		if (text_equal(roles[i].word, word))
			return roles[i].role;
	return 0;
}

unsigned config_token_roles(const struct config_token *token)
{
	unsigned sum = 0;

	for (int i = 0; i < token->roles.count; i++)
		sum |= role_of(token->roles.items[i]);
	return sum;
}

bool config_token_has_section(const struct config_token *token, const char *section)
{
	return token->sections.count == 0 ||
	       (section && config_list_has(&token->sections, section));
}

bool config_token_has_type(
    const struct config_token *token, const char *section, const char *biz_type)
{
	return config_token_has_section(token, section) &&
	       (token->types.count == 0 ||
		   config_list_matches(&token->types, biz_type ? biz_type : "*"));
}

const char *config_token_for(
    const struct config *config, enum config_role role, const char *section)
{
	for (int i = 0; i < config->token_count; i++) {
		const struct config_token *token = &config->tokens[i];

		if (token->tokens.count > 0 && config_token_roles(token) & role &&
		    config_token_has_section(token, section))
			return token->tokens.items[0];
	}
	return NULL;
}

/* --- the scope ------------------------------------------------------------------------------- */

static bool has_section(const struct config *config, const char *name)
{
	for (int i = 0; i < config->lookback_count; i++)
		if (text_equal(config->lookbacks[i].name, name))
			return true;
	for (int i = 0; i < config->deliver_count; i++)
		if (text_equal(config->delivers[i].name, name))
			return true;
	return false;
}

/* A type or pattern that matches no type of the token's sections is an error, in this key or in
 * the sections. */
static bool fits_some_type(
    const struct config *config, const struct config_token *token, const char *pattern)
{
	const struct config_list wanted = {.items = (char *[]){(char *)pattern}, .count = 1};

	if (text_equal(pattern, "*"))
		return true;
	for (int i = 0; i < config->lookback_count; i++) {
		const struct config_lookback *lookback = &config->lookbacks[i];

		if (token->sections.count > 0 && !config_list_has(&token->sections, lookback->name))
			continue;
		for (int k = 0; k < lookback->types.count; k++)
			if (config_list_matches(&wanted, lookback->types.items[k]))
				return true;
	}
	return false;
}

static bool check_token_scope(const struct config *config, const struct config_source *source,
    const struct config_token *token, struct err *err)
{
	/* a key that was forgotten must not give the right to send everything */
	if (config_token_roles(token) & ROLE_SEND &&
	    token->sections.count + token->types.count == 0)
		return config_source_refuse(err, source, CONFIG_TOKEN, token->name, "types",
		    "neither sections nor types is set; write types = * for all business types");

	for (int i = 0; i < token->publishers.count; i++)
		if (!config_find_publisher(config, token->publishers.items[i]))
			return config_source_refuse(err, source, CONFIG_TOKEN, token->name,
			    "publishers", "there is no [publisher \"%s\"]",
			    token->publishers.items[i]);
	for (int i = 0; i < token->sections.count; i++)
		if (!has_section(config, token->sections.items[i]))
			return config_source_refuse(err, source, CONFIG_TOKEN, token->name,
			    "sections", "there is no [lookback \"%s\"] and no [deliver \"%s\"]",
			    token->sections.items[i], token->sections.items[i]);
	for (int i = 0; i < token->types.count; i++)
		if (!fits_some_type(config, token, token->types.items[i]))
			return config_source_refuse(err, source, CONFIG_TOKEN, token->name, "types",
			    "%s is not a business type of %s", token->types.items[i],
			    token->sections.count > 0 ? "its sections" : "any [lookback]");
	return true;
}

/* --- roles and tokens ------------------------------------------------------------------------ */

static bool check_roles(
    const struct config_source *source, const struct config_token *token, struct err *err)
{
	if (token->roles.count == 0)
		return config_source_refuse(err, source, CONFIG_TOKEN, token->name, "roles",
		    "the token may do nothing; write for example roles = read, operate");
	for (int i = 0; i < token->roles.count; i++)
		if (!role_of(token->roles.items[i]))
			return config_source_refuse(err, source, CONFIG_TOKEN, token->name, "roles",
			    "%s is no role: read, payload, send, operate and decide are",
			    token->roles.items[i]);
	return true;
}

/* Messages never show a token. */
static bool check_token(const struct config *config, const struct config_source *source,
    const struct config_token *token, int number, struct err *err)
{
	const char *text = token->tokens.items[number];

	/* short ones can be guessed */
	if (strlen(text) < TOKEN_LENGTH)
		return config_source_refuse(err, source, CONFIG_TOKEN, token->name, "tokens",
		    "token %d has %zu characters and needs %d; make one with: openssl rand -hex 32",
		    number + 1, strlen(text), TOKEN_LENGTH);
	/* with those before it only: each pair is compared once */
	for (const struct config_token *other = config->tokens; other < token; other++)
		if (config_list_has(&other->tokens, text))
			return config_source_refuse(err, source, CONFIG_TOKEN, token->name,
			    "tokens",
			    "token %d belongs to [token \"%s\"] as well; each section needs its "
			    "own tokens",
			    number + 1, other->name);
	return true;
}

static bool check_tokens(const struct config *config, const struct config_source *source,
    const struct config_token *token, struct err *err)
{
	if (token->tokens.count == 0)
		return config_source_refuse(err, source, CONFIG_TOKEN, token->name, "tokens",
		    "the section has no tokens; set tokens or tokens_file");
	for (int i = 0; i < token->tokens.count; i++)
		if (!check_token(config, source, token, i, err))
			return false;
	return true;
}

static bool says_nothing(const struct config_token *token)
{
	return token->tokens.count + token->roles.count + token->publishers.count +
		   token->sections.count + token->types.count ==
	       0;
}

bool config_tokens_finish(
    const struct config *config, const struct config_source *source, struct err *err)
{
	for (int i = 0; i < config->token_count; i++) {
		const struct config_token *token = &config->tokens[i];

		/* an empty section, as in the sample, gives no rights */
		if (!says_nothing(token) && (!check_tokens(config, source, token, err) ||
						!check_roles(source, token, err) ||
						!check_token_scope(config, source, token, err)))
			return false;
	}
	return true;
}
