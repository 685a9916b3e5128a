"""tasks.toml to task specifications, or every problem of the file with its line and column."""
