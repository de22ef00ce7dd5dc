"""Where everything is kept: narrow ports in domain words, and their MongoDB adapter."""
