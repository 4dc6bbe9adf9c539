"""The bench's judge of answers."""

from speed.self_check import check


def test_wrong_answers_do_not_pass() -> None:
    """Answers that leave out or keep too much are found before any time is believed."""
    check()
