/*
 * Checks the permissions of the configuration and of the files that it names: *_file keys, TLS keys
 * and certificates. A user who can write such a file controls the relay, so the file is refused. A
 * user who can read one knows its secrets, so the relay warns.
 */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cleanup.h"
#include "config_source.h"

/* A group counts as other users unless it is the program's own group or root's. */
static bool others_may_write(const struct stat *file)
{
	bool own_group = file->st_gid == getegid() || file->st_gid == 0;

	return (file->st_mode & S_IWOTH) || ((file->st_mode & S_IWGRP) && !own_group);
}

/* If others may rename files in the folder, the file is as open as the folder. */
static bool folder_is_open(const char *path, char **ret_folder)
{
	const char *slash = strrchr(path, '/');
	owned_text char *folder =
	    !slash ? xstrdup(".") : xformat("%.*s", slash == path ? 1 : (int)(slash - path), path);
	struct stat state;

	/* with the sticky bit, as /tmp has it, only the owner of a file may rename it */
	if (stat(folder, &state) != 0 || !(state.st_mode & S_IWOTH) || (state.st_mode & S_ISVTX))
		return false;
	*ret_folder = folder;
	folder = NULL;
	return true;
}

bool config_files_check(
    const char *path, const struct stat *file, bool secret, struct text *warnings, struct err *err)
{
	unsigned mode = file->st_mode & 07777;
	owned_text char *folder = NULL;

	/* A pipe of the shell, or a terminal, belongs to nobody else. */
	if (!S_ISREG(file->st_mode))
		return true;
	if (others_may_write(file))
		return err_set(err, ERR_CONFIG,
		    "%s: other users can write this file (mode %04o) and so decide what the relay "
		    "does; run: chmod go-w %s",
		    path, mode, path);
	if (folder_is_open(path, &folder))
		return err_set(err, ERR_CONFIG,
		    "%s: other users can replace this file, because its folder is open to "
		    "everybody; run: chmod o-w %s",
		    path, folder);
	if (secret && (mode & S_IROTH))
		text_addf(warnings,
		    "%s: other users can read this file (mode %04o); run: chmod o-r %s\n", path,
		    mode, path);
	return true;
}

/* A missing file is reported by the code that needs it. */
static bool check_configured_path(
    const char *path, bool secret, struct text *warnings, struct err *err)
{
	struct stat file;

	return !path || !*path || stat(path, &file) != 0 ||
	       config_files_check(path, &file, secret, warnings, err);
}

static bool check_tls(const char *ca, const char *certificate, const char *key,
    const struct config_credentials *credentials, struct config *config, struct err *err)
{
	return check_configured_path(ca, false, &config->warnings, err) &&
	       check_configured_path(credentials->token_ca, false, &config->warnings, err) &&
	       check_configured_path(certificate, false, &config->warnings, err) &&
	       check_configured_path(key, true, &config->warnings, err);
}

static bool check_property(
    struct config *config, const struct kafka_property *property, struct err *err)
{
	static const struct {
		const char *name;
		bool secret;
	} files[] = {{"ssl.key.location", true}, {"ssl.keystore.location", true},
	    {"ssl.certificate.location", false}, {"ssl.ca.location", false}};

	for (size_t i = 0; i < sizeof files / sizeof *files; i++)
		if (text_equal(files[i].name, property->name) &&
		    !check_configured_path(
			property->value, files[i].secret, &config->warnings, err))
			return err_prefix(err, "%s", property->origin);
	return true;
}

bool config_files_finish(struct config *config, struct err *err)
{
	for (int i = 0; i < config->kafka_count; i++)
		for (int k = 0; k < config->kafka[i].property_count; k++)
			if (!check_property(config, &config->kafka[i].properties[k], err))
				return false;
	if (!check_configured_path(config->api.tls.certificate, false, &config->warnings, err) ||
	    !check_configured_path(config->api.tls.key, true, &config->warnings, err))
		return err_prefix(err, "[api]");
	if (!check_configured_path(config->admin_tls.certificate, false, &config->warnings, err) ||
	    !check_configured_path(config->admin_tls.key, true, &config->warnings, err))
		return err_prefix(err, "[admin]");
	for (int i = 0; i < config->check_count; i++) {
		const struct config_check *check = &config->checks[i];

		if (!check_tls(check->tls_ca, check->tls_certificate, check->tls_key,
			&check->credentials, config, err))
			return err_prefix(err, "[check \"%s\"]", check->name);
	}
	for (int i = 0; i < config->deliver_count; i++) {
		const struct config_deliver *deliver = &config->delivers[i];

		if (!check_tls(deliver->tls_ca, deliver->tls_certificate, deliver->tls_key,
			&deliver->credentials, config, err))
			return err_prefix(err, "[deliver \"%s\"]", deliver->name);
	}
	return true;
}
