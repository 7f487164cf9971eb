#pragma once
/* The main function of a program: parses the command line, then prints help or runs the command. */

/* The exit status. The program's commands are `commands` of command.h. */
int program_main(int argc, char **argv);
