"""``python -m trails``."""

from trails.app.main import main

main()
