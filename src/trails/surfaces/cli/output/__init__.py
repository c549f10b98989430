"""What commands print: text with styles, tables, JSON, errors and progress."""
