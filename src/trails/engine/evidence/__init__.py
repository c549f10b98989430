"""Records and their texts, as reading tools give them: bounded, pinned to a commit, continued."""
