"""One question over a connection of its own: commands about whole groups are rare."""

from __future__ import annotations

import asyncio

from tidemill.errors import BrokerUnreachable
from tidemill.link import Answer, dial
from tidemill.routes import Address
from tidemill.settings import ClientSettings
from tidemill_wire.commands import Command, Goodbye

ANSWER_S = 30.0
"""A seek to a time may have to read, and an answer waits for the disk as an ack's does."""


async def ask(address: Address, settings: ClientSettings, command: Command) -> Answer:
    """The broker's answer, be it an error."""
    link = await dial(address, settings)
    try:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        link.ask(command, lambda answer: None if future.done() else future.set_result(answer))
        async with asyncio.timeout(ANSWER_S):
            return await future
    except TimeoutError:
        raise BrokerUnreachable(f"{address} did not answer within {ANSWER_S:.0f} s") from None
    finally:
        link.tell(Goodbye("that was all"))
        link.close()
