/*
 * Scripts that complete the command line of a program with several commands. All three shells work
 * in the same way: a loop over the words before the cursor finds the command that they name so far
 * ("", "publisher", "publisher create"), and a table has the words that may follow it.
 *
 * These may follow: after "" the first words of all commands, after the first word of two the
 * second words, and after a command its options and the words that its row has as arguments. After
 * an option with a value comes a file if the value is called FILE, FOLDER, PATH or PROGRAM, and
 * else nothing that the shell could know.
 */
#include "completion.h"

#include <ctype.h>
#include <string.h>
#include "cleanup.h"
#include "command.h"
#include "help.h"

struct follower {
	char *command; /* that it follows */
	char *word;
	const char *help;  /* "": none */
	const char *value; /* placeholder of an option's value; NULL: it has none */
};

struct followers {
	struct follower *rows;
	size_t count;
};

static void followers_finish(struct followers *all)
{
	for (size_t i = 0; i < all->count; i++) {
		free(all->rows[i].command);
		free(all->rows[i].word);
	}
	free(all->rows);
}

static bool has_follower(const struct followers *all, const char *command, const char *word)
{
	for (size_t i = 0; i < all->count; i++)
		if (text_equal(all->rows[i].command, command) &&
		    text_equal(all->rows[i].word, word))
			return true;
	return false;
}

/* Takes word. The first of two equal words of a command stays. */
static void add_follower(
    struct followers *all, const char *command, char *word, const char *help, const char *value)
{
	if (has_follower(all, command, word)) {
		free(word);
		return;
	}
	all->rows = xrealloc(all->rows, (all->count + 1) * sizeof *all->rows);
	all->rows[all->count++] = (struct follower){xstrdup(command), word, help, value};
}

/* "bash|zsh|fish": words between bars that have no upper case, which is for placeholders. */
static void add_choices(struct followers *all, const char *command, const char *arguments)
{
	for (const char *at = arguments; strchr(arguments, '|') && *at;) {
		size_t length = strcspn(at, "|");
		bool word = length > 0;

		for (size_t i = 0; i < length; i++)
			word = word && islower((unsigned char)at[i]);
		if (word)
			add_follower(all, command, xformat("%.*s", (int)length, at), "", NULL);
		at += length + (at[length] == '|');
	}
}

static void add_option_follower(
    struct followers *all, const char *command, const struct command_option *option)
{
	add_follower(all, command, xformat("--%s", option->name), option->help, option->value);
}

static void add_command(struct followers *all, const struct command *command)
{
	size_t first = strcspn(command->name, " ");
	const char *second = command->name[first] ? command->name + first + 1 : NULL;
	owned_text char *group = xformat("%.*s", (int)first, command->name);

	add_follower(all, "", xstrdup(group), second ? "" : command->summary, NULL);
	if (second)
		add_follower(all, group, xstrdup(second), command->summary, NULL);
	for (int i = 0; command->options && command->options[i].name; i++)
		add_option_follower(all, command->name, &command->options[i]);
	add_option_follower(all, command->name, &help_config_option);
	add_follower(
	    all, command->name, xstrdup("--help"), "Prints the help of the command.", NULL);
	add_choices(all, command->name, command->arguments);
}

/* The names of commands follow `help` as well. */
static void add_names_to_help(struct followers *all)
{
	size_t count = all->count;

	for (size_t i = 0; i < count; i++) {
		const struct follower row = all->rows[i];
		owned_text char *command = xformat("help %s", row.command);

		if (!row.command[0])
			add_follower(all, "help", xstrdup(row.word), row.help, NULL);
		else if (!strchr(row.command, ' ') && row.word[0] != '-' &&
			 !text_equal(row.command, "completion"))
			add_follower(all, command, xstrdup(row.word), row.help, NULL);
	}
}

static bool is_file(const char *value)
{
	static const char *const files[] = {"FILE", "FOLDER", "PATH", "PROGRAM"};

	for (size_t i = 0; value && i < sizeof files / sizeof *files; i++)
		if (text_equal(value, files[i]))
			return true;
	return false;
}

/* All options with a value, each once, between two texts. file: those whose value is a file. */
static void add_options_with_values(
    const struct followers *all, bool file, const char *between, struct text *out)
{
	OWNED(text_finish) struct text seen = {0};

	text_add(&seen, " ");
	for (size_t i = 0; i < all->count; i++) {
		const struct follower *row = &all->rows[i];
		owned_text char *word = xformat(" %s ", row->word);

		if (!row->value || is_file(row->value) != file || strstr(text_string(&seen), word))
			continue;
		text_addf(out, "%s%s", seen.length > 1 ? between : "", row->word);
		text_addf(&seen, "%s ", row->word);
	}
}

/* Between single quotes; `quote` is how the shell writes one there. */
static void add_quoted(struct text *out, const char *words, const char *quote)
{
	text_add(out, "'");
	for (; *words; words++) {
		if (*words == '\'')
			text_add(out, quote);
		else
			text_append(out, words, 1);
	}
	text_add(out, "'");
}

static bool is_new_command(const struct followers *all, size_t at)
{
	return at == 0 || !text_equal(all->rows[at].command, all->rows[at - 1].command);
}

static int compare_followers(const void *a, const void *b)
{
	const struct follower *left = a, *right = b;
	int order = strcmp(left->command, right->command);

	return order ? order : strcmp(left->word, right->word);
}

/* The words that begin the name of a command, or are one. */
static void add_first_words(const struct followers *all, const char *before, struct text *out)
{
	for (size_t i = 0; i < all->count; i++)
		if (is_new_command(all, i) && all->rows[i].command[0] &&
		    !strchr(all->rows[i].command, ' '))
			text_addf(out, "%s%s", before, all->rows[i].command);
}

/* bash and zsh find the command by the same loop. */
static void add_loop(const struct followers *all, const char *words, struct text *out)
{
	text_addf(out,
	    "    local word command='' skip=''\n"
	    "    for word in %s; do\n"
	    "        if [[ -n $skip ]]; then skip=''; continue; fi\n"
	    "        case $word in\n"
	    "            ",
	    words);
	add_options_with_values(all, true, "|", out);
	text_add(out, "|");
	add_options_with_values(all, false, "|", out);
	text_add(out, ") skip=yes ;;\n"
		      "            -*) ;;\n"
		      "            *) case \"$command\" in ''");
	add_first_words(all, "|", out);

	text_add(out, ") command=\"${command:+$command }$word\" ;; esac ;;\n"
		      "        esac\n"
		      "    done\n");
}

/* Adds the cases of options with a value: the command for a file, and the one for any other value.
 */
static void add_value_cases(
    const struct followers *all, const char *file, const char *other, struct text *out)
{
	text_add(out, "        ");
	add_options_with_values(all, true, "|", out);
	text_addf(out, ") %s; return ;;\n        ", file);
	add_options_with_values(all, false, "|", out);
	text_addf(out, ") %sreturn ;;\n    esac\n", other);
}

static void print_bash(const struct followers *all, struct text *out)
{
	text_add(out,
	    "# bash completion of outbox-relay, printed by `outbox-relay completion bash`\n"
	    "_outbox_relay() {\n"
	    "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}\n");
	add_loop(all, "\"${COMP_WORDS[@]:1:COMP_CWORD-1}\"", out);
	text_add(out, "    COMPREPLY=()\n"
		      "    case $previous in\n");
	add_value_cases(all,
	    "compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$current\")", "", out);
	text_add(out, "    local words=''\n"
		      "    case $command in\n");

	for (size_t i = 0; i < all->count; i++) {
		if (is_new_command(all, i))
			text_addf(out, "%s        '%s') words='", i ? "' ;;\n" : "",
			    all->rows[i].command);
		else
			text_add(out, " ");
		text_add(out, all->rows[i].word);
	}
	text_add(out, "' ;;\n"
		      "    esac\n"
		      "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
		      "}\n"
		      "complete -o bashdefault -o default -F _outbox_relay outbox-relay\n");
}

static void print_zsh(const struct followers *all, struct text *out)
{
	text_add(out, "#compdef outbox-relay\n"
		      "# zsh completion of outbox-relay, printed by `outbox-relay completion zsh`\n"
		      "_outbox_relay() {\n");
	add_loop(all, "\"${(@)words[2,CURRENT-1]}\"", out);
	text_add(out, "    case ${words[CURRENT-1]} in\n");
	add_value_cases(all, "_files", "_message value; ", out);
	text_add(out, "    local -a followers\n"
		      "    case $command in\n");

	for (size_t i = 0; i < all->count; i++) {
		owned_text char *described = xformat("%s:%s", all->rows[i].word, all->rows[i].help);

		if (is_new_command(all, i))
			text_addf(out, "%s        '%s') followers=(", i ? ") ;;\n" : "",
			    all->rows[i].command);
		text_add(out, "\n            ");
		add_quoted(out, all->rows[i].help[0] ? described : all->rows[i].word, "'\\''");
	}
	text_add(out, ") ;;\n"
		      "    esac\n"
		      "    _describe outbox-relay followers || _files\n"
		      "}\n"
		      "if [[ $funcstack[1] = _outbox_relay ]]; then _outbox_relay \"$@\"; else "
		      "compdef _outbox_relay "
		      "outbox-relay; fi\n");
}

static void print_fish(const struct followers *all, struct text *out)
{
	text_add(out,
	    "# fish completion of outbox-relay, printed by `outbox-relay completion fish`\n"
	    "function __outbox_relay_command\n"
	    "    set -l command\n"
	    "    set -l skip\n"
	    "    set -l words (commandline -opc)\n"
	    "    for word in $words[2..-1]\n"
	    "        if test -n \"$skip\"\n"
	    "            set skip\n"
	    "            continue\n"
	    "        end\n"
	    "        switch $word\n"
	    "            case ");
	add_options_with_values(all, true, " ", out);
	text_add(out, " ");
	add_options_with_values(all, false, " ", out);
	text_add(out, "\n"
		      "                set skip yes\n"
		      "            case '-*'\n"
		      "            case '*'\n"
		      "                switch \"$command\"\n"
		      "                    case ''");
	add_first_words(all, " ", out);

	text_add(out, "\n"
		      "                        set command $command $word\n"
		      "                end\n"
		      "        end\n"
		      "    end\n"
		      "    echo \"$command\"\n"
		      "end\n"
		      "complete -c outbox-relay -f\n");
	for (size_t i = 0; i < all->count; i++) {
		const struct follower *row = &all->rows[i];

		text_addf(out,
		    "complete -c outbox-relay -n 'test (__outbox_relay_command) = \"%s\"'",
		    row->command);
		if (row->word[0] == '-')
			text_addf(out, " -l %s%s", row->word + 2,
			    !row->value           ? ""
			    : is_file(row->value) ? " -r -F"
						  : " -x");
		else
			text_addf(out, " -a %s", row->word);
		if (row->help[0]) {
			text_add(out, " -d ");
			add_quoted(out, row->help, "\\'");
		}
		text_add(out, "\n");
	}
}

bool completion_script(const char *shell, struct text *out)
{
	static const struct {
		const char *name;
		void (*print)(const struct followers *all, struct text *out);
	} shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
	OWNED(followers_finish) struct followers all = {0};

	for (const struct command *const *row = commands; *row; row++)
		add_command(&all, *row);
	add_option_follower(&all, "", &help_config_option);
	add_names_to_help(&all);
	qsort(all.rows, all.count, sizeof *all.rows, compare_followers);
	for (size_t i = 0; i < sizeof shells / sizeof *shells; i++) {
		if (!text_equal(shells[i].name, shell))
			continue;
		shells[i].print(&all, out);
		return true;
	}
	return false;
}
