"""The one write path: delta → validate the state after it → append → apply → acknowledge."""
