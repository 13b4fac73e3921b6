"""The command line. One file a family of commands; what is heavy is imported inside the command that needs it."""
