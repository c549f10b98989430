"""Python source of declarations: whole modules, and edits of modules that people wrote."""
