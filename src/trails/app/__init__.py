"""The composition root: settings, wiring, and App, which embeds Trails in a program."""
