/* Checks [sender] sections: each has its own tokens and an unambiguous scope. */
#include <string.h>
#include "cleanup.h"
#include "config_source.h"

bool config_sender_speaks_for(const struct config_sender *sender,
    const struct config_lookback *lookback, const char *biz_type)
{
	return (sender->sections.count == 0 ||
		   config_list_has(&sender->sections, lookback->name)) &&
	       (sender->types.count == 0 || config_list_matches(&sender->types, biz_type));
}

static bool has_section(const struct config *config, const char *name)
{
	for (int i = 0; i < config->lookback_count; i++)
		if (text_equal(config->lookbacks[i].name, name))
			return true;
	return false;
}

/* A type or pattern that matches no type of the sender's sections is an error, in this key or in
 * the sections. */
static bool fits_some_type(
    const struct config *config, const struct config_sender *sender, const char *pattern)
{
	const struct config_list wanted = {.items = (char *[]){(char *)pattern}, .count = 1};

	for (int i = 0; i < config->lookback_count; i++) {
		const struct config_lookback *lookback = &config->lookbacks[i];

		if (sender->sections.count > 0 &&
		    !config_list_has(&sender->sections, lookback->name))
			continue;
		for (int k = 0; k < lookback->types.count; k++)
			if (config_list_matches(&wanted, lookback->types.items[k]))
				return true;
	}
	return false;
}

static bool check_sender_scope(const struct config *config, const struct config_source *source,
    const struct config_sender *sender, struct err *err)
{
	/* a key that was forgotten must not give the right to send everything */
	if (sender->sections.count + sender->types.count == 0)
		return config_source_refuse(err, source, CONFIG_SENDER, sender->name, "types",
		    "neither sections nor types is set; write types = * for all business types");

	for (int i = 0; i < sender->sections.count; i++)
		if (!has_section(config, sender->sections.items[i]))
			return config_source_refuse(err, source, CONFIG_SENDER, sender->name,
			    "sections", "there is no [lookback \"%s\"]", sender->sections.items[i]);
	for (int i = 0; i < sender->types.count; i++)
		if (!fits_some_type(config, sender, sender->types.items[i]))
			return config_source_refuse(err, source, CONFIG_SENDER, sender->name,
			    "types", "%s is not a business type of %s", sender->types.items[i],
			    sender->sections.count > 0 ? "its sections" : "any [lookback]");
	return true;
}

/* A token with two scopes would be ambiguous. */
static bool check_tokens(const struct config *config, const struct config_source *source,
    const struct config_sender *sender, struct err *err)
{
	if (sender->tokens.count == 0)
		return config_source_refuse(err, source, CONFIG_SENDER, sender->name, "tokens",
		    "the sender has no tokens; set tokens or tokens_file");
	if (!config_tokens_finish(
		source, CONFIG_SENDER, sender->name, "tokens", &sender->tokens, err))
		return false;
	for (int i = 0; i < sender->tokens.count; i++) {
		const char *token = sender->tokens.items[i];

		if (config_list_has(&config->api.send_tokens, token))
			return config_source_refuse(err, source, CONFIG_SENDER, sender->name,
			    "tokens",
			    "token %d is also in [api] send_tokens, which may send all business "
			    "types; remove it from one of the two",
			    i + 1);
		/* with those before it only: each pair is compared once */
		for (const struct config_sender *other = config->senders; other < sender; other++)
			if (config_list_has(&other->tokens, token))
				return config_source_refuse(err, source, CONFIG_SENDER,
				    sender->name, "tokens",
				    "token %d belongs to [sender \"%s\"] as well; each sender "
				    "needs its own tokens",
				    i + 1, other->name);
	}
	return true;
}

bool config_senders_finish(
    const struct config *config, const struct config_source *source, struct err *err)
{
	for (int i = 0; i < config->sender_count; i++) {
		const struct config_sender *sender = &config->senders[i];

		/* an empty section, as in the sample, gives no rights */
		if (sender->tokens.count + sender->sections.count + sender->types.count == 0)
			continue;
		if (!check_tokens(config, source, sender, err) ||
		    !check_sender_scope(config, source, sender, err))
			return false;
	}
	return true;
}
