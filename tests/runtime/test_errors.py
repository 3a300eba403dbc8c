"""An error travels between processes by its name, and each name means one class."""

from __future__ import annotations

import pytest

from runtime import errors
from runtime.errors import ActorFailed, ActorGone, ComputerRLError, PayloadLost, StoreError
from runtime.messaging.message import decode_error, encode, encode_error


def test_an_error_arrives_as_its_class():
    arrived = decode_error(encode_error(PayloadLost("blob 3 is torn")), from_handler=True)
    assert (type(arrived), str(arrived)) == (PayloadLost, "blob 3 is torn")
    assert isinstance(arrived, StoreError)


def test_any_module_may_declare_an_error_that_travels():
    class BenchBrokeError(ComputerRLError):
        pass

    arrived = decode_error(encode_error(BenchBrokeError("no spindle")), from_handler=True)
    assert (type(arrived), str(arrived)) == (BenchBrokeError, "no spindle")


@pytest.mark.parametrize("name", ["NeverImportedError", "ValueError", "SystemExit", "named", "__builtins__", ""])
def test_an_error_that_this_process_does_not_know_arrives_with_its_name_and_text(name):
    arrived = decode_error(encode((name, "disk 3 is full")), from_handler=True)
    assert isinstance(arrived, ActorFailed)
    assert (arrived.type_name, arrived.text) == (name, "disk 3 is full")
    assert str(arrived) == f"{name}: disk 3 is full"


def test_a_handlers_own_peer_is_not_the_peer_that_was_asked():
    gone = encode_error(ActorGone("b stopped"))
    assert type(decode_error(gone, from_handler=False)) is ActorGone
    assert str(decode_error(gone, from_handler=True)) == "ActorGone: b stopped"


def test_two_errors_of_one_name_are_refused():
    with pytest.raises(TypeError, match=r"two errors are named PayloadLost: in runtime\.errors and in "):
        type("PayloadLost", (ComputerRLError,), {"__module__": __name__})
    assert errors.named("PayloadLost") is PayloadLost


def test_a_module_that_is_loaded_again_declares_its_errors_again(monkeypatch):
    monkeypatch.setitem(errors._NAMED, "PayloadLost", PayloadLost)
    again = type("PayloadLost", (StoreError,), {"__module__": "runtime.errors", "__qualname__": "PayloadLost"})
    assert errors.named("PayloadLost") is again
