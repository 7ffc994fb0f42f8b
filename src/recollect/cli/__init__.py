"""The command line; a command's module is imported when it is called."""
