"""What a renderer takes for a value, what it refuses, and where values belong."""

import decimal
import fractions

import numpy as np
import pitstop
import pytest
from events import happened


def logged(directory, **values):
    """What comes of values, by name."""
    with pitstop.Renderer(directory=directory) as screen:
        screen.log(**values)
    numbers = {one["name"]: float(one["value"]) for one in happened(directory, "numeric")}
    texts = {one["name"]: one["text"] for one in happened(directory, "text")}
    return numbers | texts


class Half(float):
    """A number of a type of one's own."""


class Measured:
    def __float__(self):
        return 0.25


@pytest.mark.parametrize(
    ("value", "number"),
    [
        *((1.5, 1.5), (2, 2.0), (True, 1.0), (False, 0.0), (-1.0, -1.0), (-1, -1.0), (2**70, 2.0**70)),
        *(
            (Half(0.5), 0.5),
            (Measured(), 0.25),
            (decimal.Decimal("0.125"), 0.125),
            (fractions.Fraction(1, 4), 0.25),
        ),
        *((np.float16(0.5), 0.5), (np.float32(0.25), 0.25), (np.float64(3.0), 3.0), (np.int8(-4), -4.0)),
        *((np.uint64(7), 7.0), (np.bool_(True), 1.0), (np.longdouble(0.5), 0.5)),
        *((np.array(0.5, np.float32), 0.5), (np.array([3]), 3.0), (np.ones((1, 1)), 1.0)),
        *((float("inf"), float("inf")), (float("-inf"), float("-inf"))),
    ],
    ids=repr,
)
def test_what_is_a_number_is_plotted(run, value, number):
    assert logged(run, metric=value) == {"metric": number}


def test_nan_is_a_value(run):
    assert np.isnan(logged(run, loss=float("nan"))["loss"])


def test_a_text_is_shown_as_one(run):
    values = logged(run, phase="warm-up", sample=np.str_("ünï\nhello"))
    assert values == {"phase": "warm-up", "sample": "ünï\nhello"}


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "NoneType"),
        ([1.0], "list"),
        (1j, "complex"),
        ({"a": 1}, "dict"),
        (object(), "object"),
        (b"1", "bytes"),
    ],
    ids=repr,
)
def test_anything_else_is_refused_by_name(run, value, kind):
    refused = pytest.raises(TypeError, match=f'metric "bad" must be a number or a text, not {kind}')
    with pitstop.Renderer(directory=run) as screen, refused:
        screen.log(good=1.0, bad=value)
    assert happened(run, "numeric") == [], "all of a call, or nothing"


def test_an_array_of_several_numbers_is_refused_with_its_shape():
    with pitstop.Renderer() as screen:
        with pytest.raises(
            TypeError, match=r'"losses" must be a single number, not a numpy.ndarray of shape \[2, 3\]'
        ):
            screen.log(losses=np.zeros((2, 3)))
        with pytest.raises(TypeError, match=r"of shape \[0\]"):
            screen.log(losses=np.zeros(0))


def test_what_a_value_raises_by_itself_is_not_hidden():
    class Broken:
        shape = ()

        def item(self):
            raise RuntimeError("device-side assert triggered")

    with pitstop.Renderer() as screen, pytest.raises(RuntimeError, match="device-side assert"):
        screen.log(loss=Broken())


def test_a_mapping_has_names_that_no_keyword_has(run):
    with pitstop.Renderer(directory=run) as screen:
        screen.log({"top 5/accuracy": 0.5, "split": 1, "step": 2}, values=3)
        with pytest.raises(TypeError, match="names of metrics must be text, not int"):
            screen.log({1: 0.5})
        with pytest.raises(TypeError, match="must be a mapping from names to values, or keywords, not float"):
            screen.log(0.5)
    names = {one["name"] for one in happened(run, "numeric")}
    assert names == {"top 5/accuracy", "split", "step", "values"}


def test_a_value_belongs_to_the_pass_around_it(run):
    with pitstop.Renderer(directory=run) as screen:
        screen.log(before=1)
        for _ in screen.track([0], "valid"):
            screen.log(inside=1)
            screen.log(explicit=1, split="test")
    splits = {one["name"]: one["split"] for one in happened(run, "numeric")}
    assert splits == {"before": "train", "inside": "valid", "explicit": "test"}
