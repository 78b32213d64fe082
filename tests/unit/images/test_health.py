"""What HEALTHCHECK asks, of all that one image can be."""

from __future__ import annotations

import pytest

from samples.scripts import script
from tidemill_broker.__main__ import parser as broker_parser
from tidemill_delay.__main__ import parser as delay_parser
from tidemill_meta.__main__ import parser as meta_parser

health = script("images/health.py")


@pytest.mark.parametrize(
    "command, address",
    [
        ("python -m tidemill_meta", ("127.0.0.1", 7401)),
        ("python -m tidemill_meta --host 0.0.0.0 --port 8000", ("127.0.0.1", 8000)),
        ("python -m tidemill_broker up --data /data --host 10.0.0.7", ("10.0.0.7", 7401)),
        ("python -m tidemill_broker up --port 7400 --http-port=7411", ("127.0.0.1", 7411)),
        ("/opt/tidemill/bin/python -m tidemill_delay --host ::", ("::1", 7403)),
        ("catatonit -- python -m tidemill_standalone up --http-port 1 --http-port 2", ("127.0.0.1", 2)),
    ],
)
def test_a_service_is_asked_where_its_command_says(command: str, address: tuple[str, int]) -> None:
    assert health.where(command.split()) == (*address, "/healthz")


def test_the_operator_is_asked_whether_it_lives() -> None:
    """Whether it leads is of no matter to the container."""
    assert health.where(["python", "-m", "tidemill_operator"]) == ("127.0.0.1", 8080, "/livez")


@pytest.mark.parametrize("command", ["tidemill send hello", "sh", "python -c 'import tidemill_meta'"])
def test_what_serves_nothing_is_asked_nothing(command: str) -> None:
    assert health.where(command.split()) is None


def test_ports_are_those_that_services_have_without_options() -> None:
    broker, delay, meta = (
        broker_parser().parse_args(["up"]),
        delay_parser().parse_args([]),
        meta_parser().parse_args([]),
    )

    ports = {module: port for module, (_, port) in health.PORTS.items()}

    assert ports["tidemill_broker"] == ports["tidemill_standalone"] == broker.http_port
    assert (ports["tidemill_delay"], ports["tidemill_meta"]) == (delay.http_port, meta.port)
    assert {broker.host, delay.host, meta.host} == {"127.0.0.1"}
