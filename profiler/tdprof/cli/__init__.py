"""One file per subcommand: arguments, printing and exit codes."""
