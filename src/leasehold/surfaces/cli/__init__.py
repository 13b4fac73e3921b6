"""The command line. One file for each noun; a command imports heavy modules inside its function."""
