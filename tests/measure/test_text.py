"""Replacement characters, scripts and quotations."""

import pytest

from quantwatch.measure.text import QUOTE, foreign, quote, replacements, scripts


@pytest.mark.parametrize(
    ("text", "count", "share"),
    [
        ("", 0, 0.0),
        ("sound", 0, 0.0),
        ("a\ufffd b\ufffdc", 2, 0.4),
        ("abc\ufffd\ufffd\ufffd", 0, 0.0),
        ("\ufffd" * 4, 4, 1.0),
        ("\ufffd\ufffd\ufffd", 0, 0.0),
        ("a\ufffdb\ufffd", 1, 1 / 3),
    ],
)
def test_replacements_are_counted_but_for_those_of_a_cut_character(text: str, count: int, share: float) -> None:
    found, part = replacements(text)

    assert found == count
    assert part == pytest.approx(share)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("abc", {"LATIN": 3}),
        ("Straße 7!", {"LATIN": 6}),
        ("привет", {"CYRILLIC": 6}),
        ("漢字かなカナ", {"CJK": 6}),
        ("한국", {"HANGUL": 2}),
        ("ａｂ𝐁①", {"LATIN": 3}),
        ("12 + 3 = ? 🎉", {}),
        ("ประเทศ", {"THAI": 6}),
    ],
)
def test_letters_are_counted_by_script(text: str, found: dict[str, int]) -> None:
    assert scripts(text) == found


def test_a_combining_mark_is_no_letter() -> None:
    assert scripts("e\u0301") == scripts("é")


def test_foreign_is_what_no_known_text_uses() -> None:
    share, found = foreign("ab где 한국", ["latin", "кириллица"])

    assert share == pytest.approx(2 / 7)
    assert found == ("HANGUL",)


def test_foreign_scripts_come_with_the_commonest_first() -> None:
    assert foreign("где 한국 α", [""])[1] == ("CYRILLIC", "HANGUL", "GREEK")


def test_a_text_without_letters_has_no_foreign_ones() -> None:
    assert foreign("1 + 1", []) == (0.0, ())


def test_a_quotation_is_one_printable_line_of_at_most_eighty_characters() -> None:
    told = quote("one\n\ttwo \x1b[31m\u202e" + "x" * 200)

    assert told.startswith("'one two ·[31m·xxx")
    assert told.endswith("x…'")
    assert len(told) == QUOTE + 2
    assert told.isprintable()


def test_a_text_of_just_eighty_characters_is_quoted_whole() -> None:
    assert quote("x" * QUOTE) == f"'{'x' * QUOTE}'"
    assert quote("x" * (QUOTE + 1)) == f"'{'x' * (QUOTE - 1)}…'"
