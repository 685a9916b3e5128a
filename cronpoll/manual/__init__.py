"""The manual: Markdown, one file a topic, shown by `cronpoll help`."""
