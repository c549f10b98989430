"""Let the campaign's assertions explain themselves as those of tests do."""

import pytest

pytest.register_assert_rewrite("tests.journeys.durability.campaign")
