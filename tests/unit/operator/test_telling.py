"""The log has what is new, and not again what it has said in each try since."""

from __future__ import annotations

from tidemill_operator.telling import AGAIN_S, KEPT_MAX, Told


def test_a_cause_is_told_once_for_what_it_is_about_and_again_when_it_is_another() -> None:
    told = Told()
    tries = [told.is_news("shop/orders", cause, float(at)) for at, cause in enumerate("aaabba")]
    assert tries == [True, False, False, True, False, True]
    assert told.is_news("shop/other", "a", 6.0)


def test_what_lasts_is_told_again_after_an_hour() -> None:
    told = Told()
    tries = [told.is_news("shop/orders", "a", at * 60.0) for at in range(181)]
    assert tries.count(True) == 4
    assert tries[int(AGAIN_S // 60)]


def test_what_went_well_in_between_is_news_when_it_fails_again() -> None:
    told = Told()
    assert told.is_news("shop/orders", "a", 0.0)
    told.well("shop/orders")
    told.well("shop/other")
    assert told.is_news("shop/orders", "a", 1.0)


def test_no_more_is_kept_than_fits() -> None:
    told = Told()
    for number in range(KEPT_MAX + 1):
        told.is_news(str(number), "a", 0.0)
    assert not told.is_news("1", "a", 1.0)
    assert told.is_news("0", "a", 1.0), "the oldest was forgotten"
